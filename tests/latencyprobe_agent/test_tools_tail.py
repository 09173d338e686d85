"""tools/tail.py: how a tool ends when records come faster than it prints them."""

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from latencyprobe import group
from latencyprobe_agent.kernel.evidence import Filter
from latencyprobe_agent.tools import tail
from latencyprobe_agent.tools.options import Options
from latencyprobe_agent.vocabulary.records import TCPRT


def test_what_cannot_be_shown_in_time_at_the_end_is_counted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    batches, now = [np.zeros(1000, TCPRT)] * 10, [0.0]
    ring: Any = SimpleNamespace(
        drain=lambda limit: batches.pop() if batches else np.zeros(0, TCPRT),
        waiting=lambda: 1000 * len(batches),
        lost=lambda: {"ring_full": 7},
    )
    monkeypatch.setattr(tail, "time", SimpleNamespace(monotonic=lambda: now[0]))
    for shown, _ in tail.follow(nullcontext(ring), Options(Filter(), 0.0, "table")):
        now[0] += len(shown) / 2000  # seconds to print them
    assert now[0] == 2.0, "shown for 2 s"
    assert "lost: 7 (ring_full), 6000 (not_shown)\n" in capsys.readouterr().err


def test_a_tool_ends_with_what_was_there_although_records_go_on_coming(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ring: Any = SimpleNamespace(
        drain=lambda limit: np.zeros(min(limit, 1000), TCPRT), waiting=lambda: 2500, lost=lambda: {"ring_full": 7}
    )
    monkeypatch.setattr(tail, "time", SimpleNamespace(monotonic=lambda: 0.0))  # which takes no time
    shown = [len(batch) for batch, _ in tail.follow(nullcontext(ring), Options(Filter(), 0.0, "table"))]
    assert [1000, 1000, 500] == shown
    assert "lost: 7 (ring_full)\n" in capsys.readouterr().err


def test_the_signals_iterator_runs_once_in_a_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    now, flushed = [0.0], []

    def wait(timeout_s: float) -> None:
        now[0] += timeout_s

    programs: Any = SimpleNamespace(
        drain=lambda limit: np.zeros(0, TCPRT),
        waiting=lambda: 0,
        wait=wait,
        lost=dict,
        flush=lambda: flushed.append(now[0]),
    )
    monkeypatch.setattr(tail, "time", SimpleNamespace(monotonic=lambda: now[0]))
    for _ in tail.follow(nullcontext(programs), Options(Filter(), 0.5, "table"), tick_s=0.05):
        pass
    assert 9 <= len(flushed) <= 11


@pytest.mark.parametrize(
    "tool",
    [
        ["retransmits"],
        ["handshakes"],
        ["handshakes", "--method", "tc", "--interface", "lo"],
        ["tcprt"],
        ["syscalls", "--all"],
        ["offcpu", "--all"],
        ["track", "wakeup", "--all"],
        ["record", "--all"],
        ["streams", "--port", "50051"],
    ],
    ids=" ".join,
)
def test_a_tool_that_cannot_attach_prints_no_header(
    tool: list[str], capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LATENCYPROBE_BPF_DIR", str(tmp_path))  # which has no programs
    monkeypatch.chdir(tmp_path)
    assert group.run(tool) == 1
    out, err = capfd.readouterr()
    assert ("", True) == (out, "latencyprobe: " in err), err
