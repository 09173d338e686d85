"""report/explanation_table.py: one RPC on a terminal."""

import io

import pytest
from msgspec.structs import replace
from rich.console import Console

from latencyprobe import stages
from latencyprobe.report import explanation_table
from tests.latencyprobe.explained_rpcs import CALL, CLIENT, HALF, JOINED, PAIR, SERVER, End, explained


def printed(*ends: End, width: int = 100, known: tuple[str, ...] = (), said: str = "") -> str:
    file = io.StringIO()
    explanation_table.render(explained(*ends, known=known, said=said), Console(file=file, width=width))
    return file.getvalue()


def test_stages_lie_behind_each_other_and_have_their_length_and_share() -> None:
    lines = printed((CLIENT, JOINED)).splitlines()
    rows = [next(line for line in lines if line.split()[:1] == [stage.name]) for stage in stages.PAIR]
    assert [row.split()[-3:-1] for row in rows] == [
        [length, f"{share}"] for length, share in zip(PAIR, ("0.9", "1.9", "2.9", "89.9", "0", "3.9"), strict=True)
    ]
    starts = [len(row) - len(row.split(None, 1)[1]) for row in rows]
    assert starts == sorted(starts)
    assert rows[3].count("P") > 50
    assert "·" in rows[4], "a stage that is too short to draw is there all the same"


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_it_fits_the_terminal(width: int) -> None:
    found = printed((CLIENT, JOINED), (SERVER, HALF), width=width)
    assert max(len(line.rstrip()) for line in found.splitlines()) <= width
    assert JOINED.trace_id in found


def test_a_failed_one_says_how_and_names_are_no_markup() -> None:
    found = printed((SERVER, replace(HALF, error="[/ECONNRESET]", peer="[bold]", stages=())), width=200)
    assert "failed: [/ECONNRESET]" in found
    assert "[bold]" in found


def test_both_halves_lie_on_one_axis() -> None:
    lines = printed((CLIENT, JOINED), (SERVER, HALF)).splitlines()
    client, server = (
        next(line for line in lines if line.split()[:1] == [name]) for name in ("server_process", "process")
    )
    assert (client.index("P"), client.count("P")) == (server.index("P"), server.count("P"))


def test_the_way_to_a_call_is_below_it() -> None:
    told = replace(HALF, waited_for=(CALL,))
    for known, way in (
        ((CALL.trace_id,), f"latencyprobe explain -n shop {CALL.trace_id}"),
        ((), f"trace {CALL.trace_id} (not listed here: ask where spans go)"),
    ):
        lines = [line.rstrip() for line in printed((SERVER, told), width=200, known=known).splitlines()]
        assert lines[lines.index("  why: waited for shop/redis:6379 ×3, 44ms") + 1] == f"       {way}"


def test_a_sentence_that_goes_on_is_indented_and_a_command_is_in_one_piece() -> None:
    told = replace(HALF, waited_for=(CALL,))
    lines = printed((SERVER, told), width=44, known=(CALL.trace_id,)).splitlines()
    at = lines.index("  mostly process: the server has read the")
    assert lines[at + 1] == "    request and sends nothing yet"
    assert f"       latencyprobe explain -n shop {CALL.trace_id}" in lines


def test_what_else_is_to_be_known_comes_last_and_can_be_copied() -> None:
    command = "one: " + "x" * 300
    assert printed((SERVER, HALF), said=command).endswith(f"\n\n{command}\n")
