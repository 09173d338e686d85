"""watching.py: shown again and again, ended quietly, the terminal as it was."""

import io
import os
import signal
from collections.abc import Callable
from typing import Any

import click
import pytest
from rich.console import Console

from latencyprobe import watching
from latencyprobe.errors import ReportError


def ended_after(turns: list[str | Exception]) -> Callable[[], str]:
    """Return what shows these one after the other, and then presses Ctrl-C."""
    left = iter(turns)

    def render() -> str:
        turn = next(left, None)
        if turn is None:
            os.kill(os.getpid(), signal.SIGINT)
            return "ended\n"
        if isinstance(turn, Exception):
            raise turn
        return turn

    return render


def watched(turns: list[str | Exception], between: str = "", **console: object) -> str:
    file = io.StringIO()
    before = signal.getsignal(signal.SIGINT)
    watching.watch(ended_after(turns), Console(file=file, **console), 0.001, between)
    assert before == signal.getsignal(signal.SIGINT)
    return file.getvalue()


def test_in_a_pipe_one_comes_after_the_other() -> None:
    assert "one\n---\ntwo\n" == watched(["one\n", "two\n"], "---\n")


def test_on_a_terminal_it_is_drawn_in_place_and_everything_is_as_it_was_afterwards() -> None:
    out = watched(["one\n", "two\n"], force_terminal=True, width=80, height=20, legacy_windows=False)
    assert 2 == out.count("\x1b[H") - out.count("\x1b[?1049h\x1b[H")
    assert out.index("\x1b[?1049h") < out.index("one") < out.index("two") < out.index("\x1b[?1049l")
    assert out.endswith("\x1b[?25h")


def test_a_terminal_that_cannot_replace_what_is_there_is_written_on_as_a_pipe_is() -> None:
    assert "one\n---\ntwo\n" == watched(["one\n", "two\n"], "---\n", force_terminal=True, _environ={"TERM": "dumb"})


def test_what_has_no_room_is_counted() -> None:
    out = watched(["\n".join(map(str, range(30))) + "\n"], force_terminal=True, width=80, height=10)
    assert "\n7\x1b[K\n... 22 more lines" in out
    assert "\n8\x1b[K" not in out


@pytest.mark.parametrize("error", [ReportError("no store"), click.BadParameter("no store", param_hint="--target")])
def test_what_fails_later_is_told_and_tried_again(error: Exception, capfd: pytest.CaptureFixture[str]) -> None:
    assert "one\n---\ntwo\n" == watched(["one\n", error, "two\n"], "---\n"), "a program reads the figures alone"
    assert "latencyprobe: no store\n" == capfd.readouterr().err
    terminal = watched(["one\n", error, "two\n"], force_terminal=True, width=80, height=20, legacy_windows=False)
    assert terminal.index("one") < terminal.index("latencyprobe: no store") < terminal.index("two")


def test_what_fails_at_first_is_raised() -> None:
    with pytest.raises(ReportError, match="no store"):
        watched([ReportError("no store")])


@pytest.mark.parametrize("console", [{}, {"force_terminal": True, "legacy_windows": False}], ids=["pipe", "terminal"])
@pytest.mark.parametrize("looks", [0, 1])
def test_what_fails_because_it_was_ended_is_no_failure(
    console: Any, looks: int, capfd: pytest.CaptureFixture[str]
) -> None:
    left = iter(["one\n"] * looks)

    def render() -> str:
        if (text := next(left, None)) is not None:
            return text
        os.kill(os.getpid(), signal.SIGINT)
        raise ReportError("kubectl: signal: interrupt")

    file = io.StringIO()
    watching.watch(render, Console(file=file, width=80, height=20, **console), 0.001, "---\n")
    assert looks == file.getvalue().count("one")
    assert "interrupt" not in file.getvalue() + capfd.readouterr().err
