"""report/room.py: what a report gives up where it has no room, and in which order."""

from fractions import Fraction

import msgspec
import pytest

from latencyprobe.report import model, room
from latencyprobe.slo.evaluate import State


def test_the_peers_of_the_last_minutes_are_given_up_before_exemplars(monkeypatch: pytest.MonkeyPatch) -> None:
    peers = tuple(model.PeerNow(f"shop/{i}", "1", "0", "1ms", "2ms") for i in range(5))
    now = model.Now("5m", "5", "0", "1ms", "2ms", peers=peers)
    coverage = model.Coverage("100", *(0,) * 7, "0s")
    of = ("cart", "Server", "25ms", "99", "28d", State.MET, 60, 1, 100, coverage, "2026-11-01T00:00:00Z")
    one = model.Result("checkout", "fast", *of, top_peers=(model.Peer("shop/1", 1),), now=now)
    verdicts = [((3, Fraction(1), "checkout", f"o{i:02}"), one) for i in range(20)]
    monkeypatch.setattr(room, "MAX_BYTES", 4096 + 20 * len(msgspec.json.encode(one)) - 100)
    found = room.bounded(verdicts).results
    assert [bool(one.now and one.now.peers) for one in found] == [True] * 19 + [False]
    assert all(one.now and one.top_peers for one in found)
