"""tools/top/view.py and screen.py: which rows are shown, how keys change that, and what a terminal of any width has."""

import io
import os
import pty
import sys

import pytest
from rich.console import Console
from rich.text import Text

from latencyprobe_agent.tools.top import screen
from latencyprobe_agent.tools.top.view import Row, Sort, View


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
    assert [pressed("s" * n).sort for n in range(5)] == [*Sort, Sort.P99]


def test_a_filter_is_typed_mended_kept_and_taken_back() -> None:
    typing = pressed("/WEx\x7fb")
    assert (typing.wanted, typing.typing) == ("WEb", True)
    assert [one.process for one in typing.shown([row("web"), row("redis")])] == ["web"]
    assert pressed("q", typing).wanted == "WEbq", "keys are text meanwhile"
    kept = pressed("\n", typing)
    assert (kept.wanted, kept.typing) == ("WEb", False)
    assert pressed("\x1b", kept).wanted == ""


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
