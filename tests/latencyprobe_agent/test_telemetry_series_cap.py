"""series_cap.py: room for series, and the count of those that found none."""

from latencyprobe_agent.telemetry.series_cap import SeriesCap
from latencyprobe_agent.vocabulary import conventions as names


def test_each_metric_and_target_set_has_its_own_room() -> None:
    cap = SeriesCap(1)
    places = [(names.TCP_RTT, 1), (names.TCP_RTT, 2), (names.PEER_DURATION, 1)]
    assert [True] * 3 == [cap.admit(metric, target_set, "a") for metric, target_set in places]
    assert not cap.admit(names.TCP_RTT, 1, "b")
    cap.release(names.TCP_RTT, 1)
    assert cap.admit(names.TCP_RTT, 1, "b")


def test_a_series_without_room_counts_once_and_memory_of_them_is_bounded() -> None:
    cap = SeriesCap(1)
    cap.admit(names.TCP_RTT, 1, "a")
    for series in ("b", "c", "b", "b"):
        cap.admit(names.TCP_RTT, 1, series)
    assert 2 == cap.overflow
    for number in range(1000):
        cap.admit(names.TCP_RTT, 1, number)
    assert 10 == cap.overflow, "beyond that nobody knows whether one has been counted"
