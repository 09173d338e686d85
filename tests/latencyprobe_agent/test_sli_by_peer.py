"""sli/by_peer.py: figures of the worst peers of a minute, from records."""

import math
from collections import Counter
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from numpy.typing import NDArray

from latencyprobe.bounds import bounded
from latencyprobe.plan import Identity, SpanPolicy, Target, TargetPod
from latencyprobe.plan import Role as Perspective
from latencyprobe.sli import OTHERS, PeerCounts, SliRow
from latencyprobe.slo.histogram import quantile_ns
from latencyprobe_agent.directory.peers import FakePeers
from latencyprobe_agent.measure import histogram
from latencyprobe_agent.measure.halves import halves
from latencyprobe_agent.measure.objectives import TrackedObjective
from latencyprobe_agent.sli import by_peer as module
from latencyprobe_agent.sli.by_peer import TOLD, ByPeer
from latencyprobe_agent.sli.names import Names
from latencyprobe_agent.vocabulary.addresses import address
from latencyprobe_agent.vocabulary.now import Now
from latencyprobe_agent.vocabulary.records import HISTOGRAM_MIN, Excluded, Outcome, Role
from tests.latencyprobe_agent.slicer import FAST_NS, MINUTE, MS, SLOW_NS, objective
from tests.support.exchanges import at_level, exchanges

S = 10**9
THRESHOLDS_NS = (FAST_NS, SLOW_NS)
TARGET = Target(
    *("shop/cart/web", "shop", "cart", "uid", "web", Perspective.SERVER, THRESHOLDS_NS, 0, SpanPolicy(1, 1.0, 1)),
    pods=(TargetPod("a", (80,)),),
)


def tracked(name: str = "fast", threshold: int = 0, role: Role = Role.SERVER, **changes: Any) -> TrackedObjective:
    planned = replace(objective(name, threshold), **changes)
    return TrackedObjective(planned, TARGET, role, threshold, THRESHOLDS_NS[threshold])


def at(second: float) -> Now:
    """So long after the minute's start."""
    return Now(int(second * S), MINUTE * S + int(second * S))


class Called(Names):
    """Names by a function."""

    def __init__(self, name: Callable[[bytes], str]) -> None:
        super().__init__(FakePeers())
        self._name = name

    def of(self, packed: Iterable[bytes], since_s: float) -> list[str]:
        return [self._name(one) for one in packed]


def of(*objectives: TrackedObjective, names: Names | None = None) -> ByPeer:
    found = ByPeer(names or Called(address))
    found.apply({(1, Role.SERVER): objectives or (tracked(),)})
    return found


def add(some: ByPeer, *records: NDArray[np.void], second: float = 1) -> None:
    some.add(halves(np.concatenate(records)), at(second))


def took(count: int, ms: float, peer: str, **fields: Any) -> NDArray[np.void]:
    return exchanges(count, Role.SERVER, stages=(0, 0, int(ms * MS), 0), peer=peer, **fields)


def only(rows: list[SliRow]) -> dict[str, PeerCounts]:
    (row,) = rows
    assert row == bounded(row), "what an agent sends is within the bounds"
    assert (row.good, row.bad, row.histogram) == (0, 0, {}), "these are exact, and come from elsewhere"
    return row.by_peer


def bucket(ms: float) -> int:
    """The first of the two buckets that one such duration is in."""
    return (int(histogram.positions(np.array([int(ms * MS)]))[0]) + HISTOGRAM_MIN) & ~1


def test_a_minute_that_is_over_has_events_bad_ones_and_durations_by_peer() -> None:
    some = of()
    add(some, took(3, 1, "10.0.0.2"), took(2, 9, "10.0.0.3"))
    add(some, took(1, 9, "10.0.0.2"), second=30)
    assert some.take(at(59)) == []
    add(some, took(7, 1, "10.0.0.2"), second=61)
    assert only(some.take(at(62))) == {
        "10.0.0.3": PeerCounts(2, 2, {bucket(9): 2}),
        "10.0.0.2": PeerCounts(4, 1, {bucket(1): 3, bucket(9): 1}),
    }
    assert some.take(at(63)) == []
    assert only(some.close()) == {"10.0.0.2": PeerCounts(7, 0, {bucket(1): 7})}


def test_each_objective_has_its_threshold_and_its_errors() -> None:
    lenient = tracked("lenient", threshold=1, errors_count_as_bad=False)
    some = of(tracked(), lenient)
    add(some, took(2, 9, "10.0.0.2"), took(3, 1, "10.0.0.2", outcome=Outcome.RESET), took(1, 40, "10.0.0.2"))
    bad = {row.objective: row.by_peer["10.0.0.2"].bad for row in some.close()}
    assert bad == {"fast": 6, "lenient": 1}


def test_a_record_counts_for_as_many_as_it_stands_for_and_what_is_no_event_for_none() -> None:
    some = of()
    add(some, took(3, 1, "10.0.0.2", flags=at_level(4)), took(1, 9, "10.0.0.2"))
    add(some, took(5, 9, "10.0.0.3", excluded=Excluded.PUSH), took(5, 9, "10.0.0.3", target_set=2))
    add(some, exchanges(5, Role.CLIENT, peer="10.0.0.3"))
    assert only(some.close()) == {"10.0.0.2": PeerCounts(49, 1, {bucket(1): 48, bucket(9): 1})}


def test_pods_of_one_workload_are_one_peer_and_the_worst_ten_are_told_with_all_others_as_one() -> None:
    def workload(packed: bytes) -> str:
        return f"shop/w{packed[-1] % 20}"

    some = of(names=Called(workload))
    add(some, *(took(1 + i % 20, 1, f"10.0.0.{i}") for i in range(40)), took(1, 9, "10.0.0.0"))
    found = only(some.close())
    assert list(found) == ["shop/w0", *(f"shop/w{i}" for i in range(19, 10, -1)), OTHERS]
    assert len(found) == TOLD + 1
    assert (found["shop/w0"].bad, found["shop/w19"].events) == (1, 40)
    assert sum(one.events for one in found.values()) == 2 * sum(range(1, 21)) + 1


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROOM", 8)
    monkeypatch.setattr(module, "NAMED", 3)


@pytest.mark.usefixtures("few")
def test_no_event_is_lost_where_there_is_little_room() -> None:
    some = of()
    add(some, *(took(5, 1, f"10.0.0.{i}") for i in range(9)), took(20, 9, "10.0.0.9"))
    found = only(some.close())
    assert sum(one.events for one in found.values()) == 65
    assert next(iter(found.items())) == ("10.0.0.9", PeerCounts(20, 20, {bucket(9): 20}))


def test_names_are_asked_for_as_soon_as_possible_and_an_address_stands_for_one_that_nobody_knows() -> None:
    asked: Counter[str] = Counter()

    def name(packed: bytes) -> str:
        who = address(packed)
        asked[who] += 1
        return f"shop/w{packed[-1]}" if who == "10.0.0.2" and asked[who] >= 2 else who

    some = of(names=Called(name))
    add(some, took(1, 1, "10.0.0.2"), took(1, 1, "10.0.0.3"))
    some.take(at(5))
    assert asked == {"10.0.0.2": 1, "10.0.0.3": 1}
    assert only(some.close()).keys() == {"shop/w2", "10.0.0.3"}


def test_each_of_two_that_had_an_address_in_one_minute_has_his_own_figures() -> None:
    web, cart = (Identity("10.0.0.2", "shop", name, name, name) for name in ("web", "cart"))
    peers = FakePeers(web)
    some = of(names=Names(peers))
    add(some, took(3, 9, "10.0.0.2"))
    peers.leave("10.0.0.2", 0.0, 6.0)
    some.take(at(6.5))
    add(some, took(1, 9, "10.0.0.2"), second=6.9)
    some.take(at(10))
    peers.identities["10.0.0.2"] = cart
    add(some, took(2, 1, "10.0.0.2"), second=12)
    some.take(at(15))
    assert {peer: (one.events, one.bad) for peer, one in only(some.close()).items()} == {
        "shop/web": (4, 4),
        "shop/cart": (2, 0),
    }


def test_of_an_address_that_changes_hands_at_once_nobody_is_said_to_have_it() -> None:
    peers = FakePeers(Identity("10.0.0.2", "shop", "web", "web", "web"))
    some = of(names=Names(peers))
    add(some, took(3, 9, "10.0.0.2"))
    peers.leave("10.0.0.2", 0.0, 3.0)
    peers.identities["10.0.0.2"] = Identity("10.0.0.2", "bank", "ledger", "ledger", "ledger")
    add(some, took(2, 1, "10.0.0.2"), second=4)
    some.take(at(5))
    assert only(some.close()).keys() == {"10.0.0.2"}


@given(st.lists(st.integers(10**4, 10**10), min_size=1, max_size=100))
def test_quantiles_are_those_of_the_durations_of_a_peer(durations_ns: list[int]) -> None:
    some = of()
    add(some, exchanges(len(durations_ns), Role.SERVER, stages=(0, 0, np.array(durations_ns), 0), peer="10.0.0.2"))
    found = only(some.close())["10.0.0.2"].histogram
    for q in (Fraction("0.5"), Fraction("0.99")):
        exact_ns = sorted(durations_ns)[math.ceil(q * len(durations_ns)) - 1]
        assert quantile_ns(found, q) == pytest.approx(exact_ns, rel=0.034)


def test_what_was_held_counts_for_the_objectives_before_an_edit() -> None:
    some = of()
    add(some, took(2, 1, "10.0.0.2"))
    some.apply({(1, Role.SERVER): (tracked("other"),)})
    add(some, took(3, 1, "10.0.0.2"), second=2)
    assert {row.objective: row.by_peer["10.0.0.2"].events for row in some.close()} == {"fast": 2, "other": 3}
