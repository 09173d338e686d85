"""series_cap.py: room for series, and the count of those that found none."""

from latencyprobe.plan import Role, SpanPolicy, Target
from latencyprobe_agent.measure.rules import TargetSet
from latencyprobe_agent.telemetry.series_cap import SeriesCap
from latencyprobe_agent.vocabulary import conventions as names

POLICY = SpanPolicy(1, 0.0, 100)
TARGETS = [
    Target(f"{n}/p/t{i}", n, "p", "", f"t{i}", Role.SERVER, (), 0, POLICY) for n in ("evil", "shop") for i in range(9)
]


def sets_of(*namespaces: str, targets: int = 1) -> dict[int, TargetSet]:
    """Return a target set of each of these, of so many targets, by number from 1 on."""
    return {
        number: TargetSet(tuple(f"{name}/p/t{i}" for i in range(targets)), (), 0, POLICY, f"{name}/p")
        for number, name in enumerate(namespaces, 1)
    }


def test_each_metric_and_target_set_has_its_own_room() -> None:
    cap = SeriesCap(1, 8192)
    places = [(names.TCP_RTT, 1), (names.TCP_RTT, 2), (names.PEER_DURATION, 1)]
    assert [True] * 3 == [cap.admit(metric, target_set, "a") for metric, target_set in places]
    assert not cap.admit(names.TCP_RTT, 1, "b")
    cap.release(names.TCP_RTT, 1)
    assert cap.admit(names.TCP_RTT, 1, "b")


def test_a_series_without_room_counts_once_and_memory_of_them_is_bounded() -> None:
    cap = SeriesCap(1, 8192)
    cap.admit(names.TCP_RTT, 1, "a")
    for series in ("b", "c", "b", "b"):
        cap.admit(names.TCP_RTT, 1, series)
    assert 2 == cap.overflow.total()
    for number in range(1000):
        cap.admit(names.TCP_RTT, 1, number)
    assert 10 == cap.overflow.total(), "beyond that nobody knows whether one has been counted"


def test_one_namespace_s_target_sets_take_no_series_from_another() -> None:
    """With the cap of each target set alone 511 sets had 600 MB of series."""
    cap = SeriesCap(10, room=60)
    cap.follow(sets_of(*["evil"] * 20, "shop"), TARGETS)
    assert 60 == sum(cap.admit(names.TCP_RTT, number, (number, i)) for number in range(1, 21) for i in range(10))
    assert [True] * 10 == [cap.admit(names.TCP_RTT, 21, ("shop", i)) for i in range(10)]
    assert {"evil": 100, "shop": 0} == cap.overflow, "so many as are recognised"
    assert {"evil"} == cap.share_out()


def test_a_series_of_several_targets_takes_room_for_each() -> None:
    cap = SeriesCap(10, room=8)
    cap.follow(sets_of("evil", targets=3), TARGETS[:9])
    assert [True, True, False] == [cap.admit(names.TCP_RTT, 1, i) for i in range(3)]
    cap.release(names.TCP_RTT, 1)
    assert cap.admit(names.TCP_RTT, 1, 3)


def test_other_has_room_of_its_own_and_beyond_it_there_is_none() -> None:
    cap = SeriesCap(10, room=2)
    cap.follow(sets_of("evil"), TARGETS[:9])
    assert [True, True, False] == [cap.admit(names.TCP_RTT, 1, i) for i in range(3)]
    assert [True, True, False] == [cap.admit_other(1) for _ in range(3)]
    cap.release(names.TCP_RTT, 1, other=True)
    assert cap.admit_other(1)
