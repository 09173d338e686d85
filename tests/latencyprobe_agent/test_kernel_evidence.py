"""kernel/evidence.py: what a tool puts into force, and in which order."""

from pathlib import Path

import numpy as np
import pytest

from latencyprobe_agent.kernel import counts
from latencyprobe_agent.kernel.evidence import EvidencePrograms, Filter
from latencyprobe_agent.signals.table import TASKS
from latencyprobe_agent.vocabulary.records import CONFIG


class Attached(EvidencePrograms):
    """Programs of which nothing is loaded: `written` has what is put into their maps, in order."""

    def __init__(self, loaded: object, *_: object) -> None:
        self.written: list[tuple[str, bytes]] = []
        self.ring_bytes = 1 << 20

    def map(self, name: str) -> "Written":  # type: ignore[override]  # a fake
        return Written(self.written, name)

    def close(self) -> None:
        """Nothing is attached."""


class Written:
    """A map of them."""

    def __init__(self, written: list[tuple[str, bytes]], name: str) -> None:
        self._written, self._name = written, name

    def update(self, _: bytes, value: bytes) -> None:
        self._written.append((self._name, value))


def test_what_was_decided_before_a_tools_choice_was_complete_is_decided_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts, "entries", lambda _: 1)
    monkeypatch.setattr(Attached, "load", lambda *_, **__: None)
    ports = {"tcprt_ports": {bytes(4): bytes(8)}}
    with Attached.alone(Path("/nowhere"), TASKS, Filter(), entries=ports) as attached:
        *choice, (last, value) = attached.written
    assert {"tcprt_ports", "evidence_filter"} <= {name for name, _ in choice}
    assert (last, "config" in dict(choice)) == ("config", False)
    assert np.frombuffer(value, CONFIG)["generation"] == 1, "0 is that of decisions before"
