"""tools/top/view.py and screen.py: which rows are shown, how keys change that, and what a terminal of any width has."""

import io
import os
import pty
import re
import sys

import pytest
from rich.console import Console
from rich.text import Text

from latencyprobe_agent.tools.top import screen
from latencyprobe_agent.tools.top.view import OF_CLUSTER, OF_HOST, By, Row, Sort, View


def row(process: str = "web", rate: float = 1.0, p50_ns: int = 1, p99_ns: int = 1, errors: float = 0.0) -> Row:
    stages = (("receive", 0.1), ("read_delay", 0.2), ("process", 0.6), ("send", 0.1))
    return Row("cart", "server", process, "10.0.0.2", rate, p50_ns, p99_ns, errors, stages)


ROWS = [row("a", rate=9), row("b", p50_ns=9), row("c", p99_ns=9), row("d", errors=0.5)]


@pytest.mark.parametrize(("sort", "first"), [(Sort.RATE, "a"), (Sort.P50, "b"), (Sort.P99, "c"), (Sort.ERRORS, "d")])
def test_rows_are_sorted_by_what_was_asked_the_largest_first(sort: Sort, first: str) -> None:
    assert View(sort).shown(ROWS)[0].process == first


def pressed(keys: str, view: View | None = None) -> View:
    view = view or View()
    for key in keys:
        view = view.pressed(key)
    return view


def test_s_goes_through_all_orders_and_back() -> None:
    assert [pressed("s" * n).sort for n in range(5)] == [*OF_HOST, Sort.P99]
    of_cluster = View(Sort.STATE, sorts=OF_CLUSTER)
    assert [pressed("s" * n, of_cluster).sort for n in range(6)] == [*Sort, Sort.STATE]


def test_the_worst_state_comes_first_then_p99() -> None:
    rows = [row(state, p99_ns=p99_ns)._replace(state=state) for p99_ns, state in enumerate(("Met", "Violated") * 2)]
    found = View(Sort.STATE).shown(rows)
    assert [(one.state, one.p99_ns) for one in found] == [("Violated", 3), ("Violated", 1), ("Met", 2), ("Met", 0)]


def moved(*keys: str, view: View | None = None) -> View:
    view = view or View()
    for key in keys:
        view = view.pressed(key, ROWS)
    return view


def test_rows_are_scrolled_to_the_last_and_back() -> None:
    assert [moved(*"j" * n).first for n in range(6)] == [0, 1, 2, 3, 3, 3]
    assert moved("\x1b[B", "j", "\x1b[A", "k", "k").first == 0
    assert [moved("\x1b[6~").first, moved("\x1b[6~", "\x1b[5~").first] == [3, 0]
    assert moved("j", view=View(wanted="web")).first == 0, "there is one row, or none"


def test_what_changes_the_rows_shows_the_first_of_them() -> None:
    assert [moved("j", key).first for key in ("s", "/", "\x1b", " ")] == [0, 0, 0, 1]


@pytest.mark.parametrize(
    ("keys", "shown", "said"),
    [("", "abc", "and 3 more: "), ("j", "bcd", "1 above, and 2 more: "), ("jjjj", "ef", "4 above: ")],
)
def test_what_has_no_room_on_the_screen_is_counted_and_reached_by_scrolling(keys: str, shown: str, said: str) -> None:
    rows = [row(process, p99_ns=9 - i) for i, process in enumerate("abcdef")]
    view = View()
    for key in keys:
        view = view.pressed(key, rows)
    file = io.StringIO()
    with screen.Screen(Console(file=file, width=60, height=7, force_terminal=True, color_system=None)) as drawn:
        drawn.draw(view, rows, Text())
    text = file.getvalue()
    assert re.findall(r"^([a-f]) +10\.0\.0\.2", text, re.MULTILINE) == [*shown]
    assert f"{said}j k scroll" in text


def test_b_is_by_peer_and_back_and_no_key_of_a_host() -> None:
    of_cluster = View(Sort.STATE, sorts=OF_CLUSTER, first=1)
    assert [pressed("b" * n, of_cluster).by for n in range(3)] == [By.OBJECTIVE, By.PEER, By.OBJECTIVE]
    assert pressed("b", of_cluster).first == 0
    assert pressed("b") == View()


@pytest.mark.parametrize(("view", "has"), [(View(), False), (View(Sort.STATE, sorts=OF_CLUSTER), True)])
def test_the_keys_that_there_are_are_named(view: View, has: bool) -> None:
    file = io.StringIO()
    console = Console(file=file, width=80, height=9, force_terminal=True, color_system=None)
    with screen.Screen(console) as drawn:
        drawn.draw(view, [row()._replace(state="Met")], Text())
    assert ("b by peer" in file.getvalue()) == has


def test_what_arrows_send_is_one_key_each() -> None:
    assert screen.split("\x1b[Bj\x1b[6~\x1b") == ["\x1b[B", "j", "\x1b[6~", "\x1b"]
    assert pressed("", View(typing=True)).pressed("\x1b[B").wanted == "", "no text"


def test_a_filter_is_typed_mended_kept_and_taken_back() -> None:
    typing = pressed("/WEx\x7fb")
    assert (typing.wanted, typing.typing) == ("WEb", True)
    assert [one.process for one in typing.shown([row("web"), row("redis")])] == ["web"]
    assert pressed("q", typing).wanted == "WEbq", "keys are text meanwhile"
    kept = pressed("\n", typing)
    assert (kept.wanted, kept.typing) == ("WEb", False)
    assert pressed("\x1b", kept).wanted == ""


def test_a_filter_finds_an_objective_by_its_peers() -> None:
    objective = row()._replace(peers=(row()._replace(peer="shop/frontend"),))
    for by in By:
        assert [1, 0] == [len(View(wanted=wanted, by=by).shown([objective])) for wanted in ("Frontend", "backend")]


def test_space_pauses_and_q_ends() -> None:
    assert [pressed(" ").paused, pressed("  ").paused, pressed("q").ended, pressed("x").ended] == [
        True,
        False,
        True,
        False,
    ]


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_it_fits_the_terminal(width: int) -> None:
    file = io.StringIO()
    long = row("p" * 60, rate=1_234_567.8, p50_ns=123_456, p99_ns=98_765_432, errors=0.123)
    screen.print_plain(Console(file=file, width=width), View(wanted="p", paused=True), [long, row("x")], Text("7 lost"))
    text = file.getvalue()
    assert max(map(len, text.splitlines())) <= width
    for said in ("1,234,569 RPC/s", "sorted by p99", "7 lost", "98.8ms", "12.3 %"):
        assert said in text


def test_stages_have_letters_where_there_are_no_colours() -> None:
    file = io.StringIO()
    screen.print_plain(Console(file=file, width=120), View(), [row()], Text())
    assert "rrdddPPPPPPPPPss" in file.getvalue()


def test_stages_have_letters_where_there_are_no_blocks() -> None:
    file = io.TextIOWrapper(io.BytesIO(), "latin-1")
    screen.print_plain(Console(file=file, width=120, force_terminal=True, color_system="256"), View(), [row()], Text())
    file.seek(0)
    assert "PPP" in file.read()


def test_an_interval_without_rpcs_says_so_in_its_headline() -> None:
    file = io.StringIO()
    screen.print_plain(Console(file=file, width=120), View(), [], Text())
    assert "0 RPC/s  0 rows" in file.getvalue()


LEADER = """
import os, subprocess, sys
job = "from latencyprobe_agent.tools.top.screen import Keys\\nwith Keys() as keys: assert not [*keys.pressed()]"
background = subprocess.Popen([sys.executable, "-c", job], process_group=0)
_, status = os.waitpid(background.pid, os.WUNTRACED)
sys.exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else os.WSTOPSIG(status))
"""


def test_a_job_in_the_background_takes_no_keys_from_another_one() -> None:
    """Whoever sets up the terminal of another job is stopped by the kernel (SIGTTOU)."""
    process, terminal = pty.fork()  # the leader of a session with a terminal of its own
    if process == 0:
        os.execv(sys.executable, [sys.executable, "-c", LEADER])
    try:
        assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
    finally:
        os.close(terminal)
