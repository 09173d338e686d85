from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latencyprobe.plan import Identity
from latencyprobe_agent.measure.pairing import LocalJoin
from latencyprobe_agent.telemetry.points import Histogram
from latencyprobe_agent.telemetry.record_histograms import OTHER_OWNER, Group, RecordHistograms, Series
from latencyprobe_agent.vocabulary import conventions as names
from latencyprobe_agent.vocabulary.records import ExchangeFlags, Role

CART = Group(1, Role.SERVER, 7)


def found(histograms: RecordHistograms) -> dict[Series, Histogram]:
    return dict(histograms.series())


def count(histogram: Histogram) -> int:
    return int(histogram.counts.sum()) + histogram.zero


def quantile_bounds(histogram: Histogram, place: int) -> tuple[float, float]:
    index = int(histogram.counts.nonzero()[0][place]) + histogram.offset
    return 2 ** (index / 2**histogram.scale), 2 ** ((index + 1) / 2**histogram.scale)


@pytest.fixture
def histograms() -> RecordHistograms:
    return RecordHistograms(200, by_process=False, identity_wait_s=2.0)


def test_stages_are_kept_by_role_and_owner(histograms: RecordHistograms, make_halves: Any) -> None:
    stages = (0, 1_000, 1_000_000, 50)
    halves = make_halves(
        {"role": Role.SERVER, "cgroup_id": 7, "stages": stages},
        {"role": Role.SERVER, "cgroup_id": 7, "stages": stages},
        {"role": Role.SERVER, "cgroup_id": 8, "stages": stages},
        {"role": Role.CLIENT, "cgroup_id": 7, "stages": stages},
    )
    histograms.add(halves, 0.0, by_peer=False)
    series = found(histograms)
    assert len(series) == 3 * 4
    process = series[Series(names.STAGE_DURATION, CART, "process")]
    low, high = quantile_bounds(process, 0)
    assert low < 1e-3 <= high
    assert (count(process), process.sum_s) == (2, 2e-3)
    assert series[Series(names.STAGE_DURATION, CART, "receive")].zero == 2
    assert Series(names.STAGE_DURATION, Group(1, Role.CLIENT, 7), "wait") in series


def test_exchanges_that_are_no_events_stay_out(histograms: RecordHistograms, make_halves: Any) -> None:
    histograms.add(make_halves({"role": Role.SERVER, "excluded": 4}), 0.0, by_peer=True)
    assert found(histograms) == {}


def test_standalone_the_owner_is_the_process(make_halves: Any) -> None:
    histograms = RecordHistograms(200, by_process=True, identity_wait_s=2.0)
    halves = make_halves({"role": Role.SERVER, "writer_tgid": 5}, {"role": Role.SERVER, "reader_tgid": 6})
    histograms.add(halves, 0.0, by_peer=False)
    assert {series.group.owner for series in found(histograms)} == {5, 6}


def test_a_round_trip_counts_only_where_there_is_a_sample(histograms: RecordHistograms, make_halves: Any) -> None:
    halves = make_halves({"role": Role.SERVER, "cgroup_id": 7, "srtt_us": 100}, {"role": Role.SERVER, "cgroup_id": 7})
    histograms.add(halves, 0.0, by_peer=False)
    rtt = found(histograms)[Series(names.TCP_RTT, CART, "")]
    assert (count(rtt), rtt.sum_s) == (1, 1e-4)


def test_what_thinning_left_counts_for_what_it_stands_for(histograms: RecordHistograms, make_halves: Any) -> None:
    stages = (0, 1_000, 1_000_000, 0)
    one = {"role": Role.SERVER, "cgroup_id": 7, "stages": stages}
    histograms.add(make_halves(one, one | {"flags": ExchangeFlags.ADJUSTED}), 0.0, by_peer=False)
    process = found(histograms)[Series(names.STAGE_DURATION, CART, "process")]
    assert (count(process), process.sum_s) == (17, 17e-3)


def test_network_is_counted_under_the_client(histograms: RecordHistograms, make_halves: Any) -> None:
    client = {"role": Role.CLIENT, "cgroup_id": 3, "stages": (0, 1000, 0, 0)}
    pairs = LocalJoin().join(make_halves(client, {"role": Role.SERVER, "stages": (0, 0, 400, 0)}))
    histograms.add_pairs(pairs, names.LOCAL)
    ((series, histogram),) = found(histograms).items()
    assert (series.metric, series.group) == (names.NETWORK_DURATION, Group(1, Role.CLIENT, 3))
    assert histogram.sum_s == pytest.approx(600e-9)


def test_a_peer_is_counted_under_its_name_once_it_is_known(histograms: RecordHistograms, make_halves: Any) -> None:
    halves = make_halves(*({"role": Role.SERVER, "cgroup_id": 7, "stages": (9, 0, 0, 0)} for _ in range(3)))
    histograms.add(halves, 10.0, by_peer=True)
    assert histograms.waiting_peers == {"10.0.0.2"}
    histograms.name_peers({}, 11.0)
    assert histograms.waiting_peers == {"10.0.0.2"}
    histograms.name_peers({"10.0.0.2": Identity("10.0.0.2", service="web")}, 11.5)
    assert count(found(histograms)[Series(names.PEER_DURATION, CART, "web")]) == 3
    assert histograms.waiting_peers == set()


def test_a_peer_that_nobody_names_is_unresolved_after_the_wait(histograms: RecordHistograms, make_halves: Any) -> None:
    histograms.add(make_halves({"role": Role.SERVER, "cgroup_id": 7}), 10.0, by_peer=True)
    histograms.name_peers({}, 12.0)
    assert count(found(histograms)[Series(names.PEER_DURATION, CART, "unresolved")]) == 1


def test_owners_that_have_ended_make_room(make_halves: Any) -> None:
    histograms = RecordHistograms(1, by_process=False, identity_wait_s=2.0)
    for owner in (1, 2):
        histograms.add(make_halves({"role": Role.SERVER, "cgroup_id": owner, "srtt_us": 5}), 0.0, by_peer=False)
        histograms.forget({owner})
    assert histograms.overflow == 2 * 3  # of four stages one found room
    histograms.add(make_halves({"role": Role.SERVER, "cgroup_id": 3, "srtt_us": 5}), 0.0, by_peer=False)
    owners = {series.group.owner for series in found(histograms) if series.metric is names.TCP_RTT}
    assert owners == {3}


@given(owners=st.lists(st.integers(1, 20), min_size=1, max_size=60))
def test_the_cap_folds_series_but_loses_no_count(make_halves: Any, owners: list[int]) -> None:
    histograms = RecordHistograms(8, by_process=False, identity_wait_s=2.0)
    for owner in owners:
        histograms.add(make_halves({"role": Role.SERVER, "cgroup_id": owner, "srtt_us": 5}), 0.0, by_peer=False)
    rtt = {series: h for series, h in found(histograms).items() if series.metric is names.TCP_RTT}
    assert sum(count(histogram) for histogram in rtt.values()) == len(owners)
    distinct = len(set(owners))
    assert len(rtt) == min(distinct, 9)
    assert (OTHER_OWNER in {series.group.owner for series in rtt}) == (distinct > 8)
    assert (histograms.overflow > 0) == (distinct * 4 > 8)
