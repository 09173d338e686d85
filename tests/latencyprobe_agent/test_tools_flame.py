"""`latencyprobe flame` from recorded calls: forms, files, what it says."""

import gzip
from collections.abc import Iterable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from latencyprobe import group
from latencyprobe_agent.flame.folding import lines
from latencyprobe_agent.measure.calls_in_progress import Call
from latencyprobe_agent.symbols.symbolizer import Symbolizer
from latencyprobe_agent.tools.flame import Graph, flame

Kernel = tuple[tuple[int, tuple[int, ...]], ...]
FOLDED = "[pg];main;-;schedule 5000000\n[pg];main;-;[oncpu] 1000000\n"


def run(*words: str, given: str = FOLDED) -> Result:
    return CliRunner().invoke(flame, ["--from", "-", *words], input=given)


def test_folded_text_is_sorted_and_added_up() -> None:
    result = run(given=FOLDED + FOLDED)
    assert "[pg];main;-;[oncpu] 2000000\n[pg];main;-;schedule 10000000\n" == result.stdout
    assert "12ms in slow system calls, 2 stacks" in result.stderr


@pytest.mark.parametrize(
    ("form", "begins"), [("svg", b"<svg "), ("html", b"<!doctype html>"), ("pprof", b"\x1f\x8b"), ("folded", b"[pg]")]
)
def test_every_form_goes_to_standard_output_or_a_file(tmp_path: Path, form: str, begins: bytes) -> None:
    target = tmp_path / "flame"
    printed = run("-o", form)
    result = run("-o", form, "--output-file", str(target))
    assert "" == result.stdout
    assert target.read_bytes() == printed.stdout_bytes
    assert printed.stdout_bytes.startswith(begins)
    assert b"schedule" in (gzip.decompress(printed.stdout_bytes) if form == "pprof" else printed.stdout_bytes)


def test_a_file_is_named_in_the_title_and_lost_lines_are_told(tmp_path: Path) -> None:
    (tmp_path / "calls.txt").write_text(FOLDED + "nonsense\n\xff\n")
    result = CliRunner().invoke(flame, ["--from", str(tmp_path / "calls.txt"), "-o", "svg"])
    assert "6ms in slow system calls · calls.txt" in result.stdout
    assert "missing: 2 lines not understood" in result.stdout
    assert "missing: 2 lines not understood" in result.stderr


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "probe.yaml").write_text("kind: LatencyProbe\nspec: {}\n")
    result = CliRunner().invoke(flame, ["--from", str(tmp_path / "probe.yaml")])
    assert 2 == result.exit_code
    assert "probe.yaml: none of its 2 lines is folded text" in result.output


def test_nothing_is_a_graph_too_and_says_what_to_do() -> None:
    result = run("-o", "html", given="")
    assert 0 == result.exit_code
    assert "No call was slower than the threshold" in result.stdout
    assert "--slower-than" in result.stderr


def test_a_file_that_cannot_be_written_or_read_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "calls").write_text(FOLDED)
    missing = str(tmp_path / "no" / "file")
    assert 1 == group.run(["flame", "--from", str(tmp_path / "calls"), "--output-file", missing])
    assert f"latencyprobe: {missing}: No such file or directory\n" == capsys.readouterr().err
    assert 2 == group.run(["flame", "--from", missing])
    assert "does not exist" in capsys.readouterr().err


class Names(Symbolizer):
    """Names that are the addresses; no process."""

    def kernel(self, addresses: Iterable[int]) -> list[str]:
        return [f"k{address}" for address in addresses]

    def user(self, tgid: int, addresses: Iterable[int], *, taken_ns: int = 0) -> list[str]:
        return [f"u{address}" for address in addresses]


def call(comm: str = "pg", duration_ns: int = 10, user: tuple[int, ...] = (), kernel: Kernel = ()) -> Call:
    return Call(comm, 7, 8, 1000, duration_ns, 35, user, kernel)


def test_a_call_is_named_weighed_and_added_up() -> None:
    graph = Graph(Names())
    for _ in range(2):
        graph.add(call(user=(5, 21), kernel=((4, (100, 201)), (9, (110, 201)))))
    assert ["[pg];u20;u5;-;[oncpu] 2", "[pg];u20;u5;-;k200;k100 8", "[pg];u20;u5;-;k200;k110 10"] == [
        *lines(graph.folded)
    ]
    assert not graph.missing


def test_a_live_graph_is_bounded_and_still_adds_up() -> None:
    graph = Graph(Names(), most_stacks=4)
    for i in range(100):
        graph.add(call(user=(i, 1)))
    graph.add(call(comm="other"))
    assert 6 == len(graph.folded)
    assert 1010 == sum(graph.folded.values())
    assert {"calls of too many different stacks": 97} == graph.missing


def test_a_call_of_known_stacks_is_added_to_them_however_many_there_are() -> None:
    graph = Graph(Names(), most_stacks=2)
    for i in (1, 2, 3, 1):
        graph.add(call(user=(i,)))
    graph.add(call(user=(1,), kernel=((4, (100,)),)))  # which has a new one, too
    assert ["[pg];-;[other] 20", "[pg];u1;-;[oncpu] 20", "[pg];u2;-;[oncpu] 10"] == [*lines(graph.folded)]
    assert {"calls of too many different stacks": 2} == graph.missing


def test_a_call_without_a_stack_is_counted() -> None:
    graph = Graph(Names())
    graph.add(call())
    assert {"calls without a stack": 1} == graph.missing
    assert {("[pg]", "-", "[oncpu]"): 10} == graph.folded


def test_what_is_live_and_what_is_recorded_exclude_each_other() -> None:
    runner = CliRunner()
    for words in ("--pid 1", "--slower-than 20ms", "--all-waits", "--all", "--duration 1s"):
        said = f"--from and {words.partition(' ')[0]} exclude each other"
        assert said in runner.invoke(flame, ["--from", "-", *words.split()]).stderr
    assert "say whose: --pid" in runner.invoke(flame, []).stderr
    assert "--all and --pid" in runner.invoke(flame, ["--all", "--pid", "1"]).stderr
