from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from latencyprobe.plan import Identity
from latencyprobe_agent.measure.halves import Halves, halves
from latencyprobe_agent.measure.histogram import positions
from latencyprobe_agent.measure.pairing import LocalJoin, Pairs
from latencyprobe_agent.measure.stages import NETWORK_AT, half_stages
from latencyprobe_agent.telemetry.points import Histogram
from latencyprobe_agent.telemetry.record_histograms import OTHER_OWNER, Group, RecordHistograms, Series
from latencyprobe_agent.telemetry.series_cap import SeriesCap
from latencyprobe_agent.vocabulary import conventions as names
from latencyprobe_agent.vocabulary.records import HISTOGRAM_BUCKETS, SAMPLING_LEVEL_SHIFT, ExchangeFlags, Excluded, Role
from tests.support.exchanges import at_level, exchanges

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
    return RecordHistograms(SeriesCap(200, 8192), by_process=False, identity_wait_s=2.0)


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
    histograms = RecordHistograms(SeriesCap(200, 8192), by_process=True, identity_wait_s=2.0)
    halves = make_halves({"role": Role.SERVER, "writer_tgid": 5}, {"role": Role.SERVER, "reader_tgid": 6})
    histograms.add(halves, 0.0, by_peer=False)
    assert {series.group.owner for series in found(histograms)} == {5, 6}


def test_a_round_trip_counts_only_where_there_is_a_sample(histograms: RecordHistograms, make_halves: Any) -> None:
    halves = make_halves({"role": Role.SERVER, "cgroup_id": 7, "srtt_us": 100}, {"role": Role.SERVER, "cgroup_id": 7})
    histograms.add(halves, 0.0, by_peer=False)
    rtt = found(histograms)[Series(names.TCP_RTT, CART, "")]
    assert (count(rtt), rtt.sum_s) == (1, 1e-4)


def test_a_sampled_record_counts_for_what_it_stands_for(histograms: RecordHistograms, make_halves: Any) -> None:
    stages = (0, 1_000, 1_000_000, 0)
    one = {"role": Role.SERVER, "cgroup_id": 7, "stages": stages}
    histograms.add(make_halves(one, one | {"flags": ExchangeFlags.FRESH | at_level(6)}), 0.0, by_peer=False)
    process = found(histograms)[Series(names.STAGE_DURATION, CART, "process")]
    assert (count(process), process.sum_s) == (65, pytest.approx(65e-3))


@pytest.mark.parametrize(("client_level", "server_level"), [(0, 4), (4, 0), (4, 2)])
def test_a_pair_stands_for_as_many_as_its_rarer_half(
    histograms: RecordHistograms, make_halves: Any, client_level: int, server_level: int
) -> None:
    client = {"role": Role.CLIENT, "cgroup_id": 3, "stages": (0, 1000, 0, 0), "flags": at_level(client_level)}
    server = {"role": Role.SERVER, "stages": (0, 0, 400, 0), "flags": at_level(server_level)}
    histograms.add_pairs(LocalJoin().join(make_halves(client, server)), names.LOCAL)
    (histogram,) = found(histograms).values()
    assert count(histogram) == 16


def test_metrics_of_a_sample_are_those_of_all_records_within_their_standard_error() -> None:
    """Random traffic between two hosts whose sampling levels change on their own; slow ones always come, of either."""
    dice, total = np.random.default_rng(8), 60_000
    process_ns = dice.lognormal(np.log(1e6), 1.2, total).astype(np.int64)
    wire_ns = dice.lognormal(np.log(3e5), 1.5, total).astype(np.int64)
    chance = dice.random(total)  # what both hosts know of an exchange: it is kept at a level if it is below 2^-level
    ends = {
        Role.CLIENT: exchanges(
            total, Role.CLIENT, stages=(0, wire_ns + process_ns, 0, 0), request_seq=np.arange(total)
        ),
        Role.SERVER: exchanges(total, Role.SERVER, stages=(0, 0, process_ns, 0), request_seq=np.arange(total)),
    }
    every, whole, pairs = metrics(ends.values())
    weights, kept = {}, []
    for role, levels in ((Role.CLIENT, range(5)), (Role.SERVER, range(2, 7))):
        slow = whole.duration_ns[whole.rec["role"] == role] > 10_000_000
        level = np.where(slow, 0, np.repeat(dice.choice(levels, total // 500), 500))
        ends[role]["flags"] = level << SAMPLING_LEVEL_SHIFT
        weights[role] = 2**level
        kept.append(ends[role][chance * weights[role] < 1])
    sampled, some, _ = metrics(kept)
    assert len(some) < 2 * total / 3

    z = []
    for series, histogram in found(every).items():
        role = series.group.role
        if series.metric is names.NETWORK_DURATION:
            ns, rarer = pairs.stages[:, NETWORK_AT], np.maximum(*weights.values())
            weight = rarer[pairs.client.rec["request_seq"]]
        else:
            ns = whole.stages[whole.rec["role"] == role, half_stages(role).index(series.detail)]
            weight = weights[role]
        estimate = found(sampled)[series]
        if ns.any():
            z.append((estimate.sum_s - histogram.sum_s) * 1e9 / np.sqrt(((weight - 1) * ns.astype(float) ** 2).sum()))
        column = np.where(ns > 0, positions(ns) // 2, HISTOGRAM_BUCKETS // 2)
        variance, records = (np.bincount(column, of, HISTOGRAM_BUCKETS // 2 + 1) for of in (weight - 1, 1 / weight))
        difference = np.append(estimate.counts - histogram.counts, estimate.zero - histogram.zero)
        enough = (records >= 50) & (variance > 0)  # of fewer the estimate is not normal
        z += (difference[enough] / np.sqrt(variance[enough])).tolist()
    print(f"{len(some)} of {2 * total} records, {len(z)} figures, off by up to {np.abs(z).max():.1f} standard errors")
    assert len(z) > 100
    assert np.abs(z).max() < 4
    assert 0.7 < np.std(z) < 1.3


def metrics(records: Iterable[NDArray[np.void]]) -> tuple[RecordHistograms, Halves, Pairs]:
    histograms = RecordHistograms(SeriesCap(200, 8192), by_process=False, identity_wait_s=2.0)
    some = halves(np.concatenate(list(records)))
    pairs = LocalJoin(1).join(some)
    histograms.add(some, 0.0, by_peer=False)
    histograms.add_pairs(pairs, names.LOCAL)
    return histograms, some, pairs


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
    cap = SeriesCap(1, 8192)
    histograms = RecordHistograms(cap, by_process=False, identity_wait_s=2.0)
    for owner in (1, 2):
        histograms.add(make_halves({"role": Role.SERVER, "cgroup_id": owner, "srtt_us": 5}), 0.0, by_peer=False)
        histograms.forget(lambda group: group.owner in (1, 2))
    assert cap.overflow.total() == 2 * 3  # of four stages one found room
    histograms.add(make_halves({"role": Role.SERVER, "cgroup_id": 3, "srtt_us": 5}), 0.0, by_peer=False)
    owners = {series.group.owner for series in found(histograms) if series.metric is names.TCP_RTT}
    assert owners == {3}


@given(owners=st.lists(st.integers(1, 20), min_size=1, max_size=60))
def test_the_cap_folds_series_but_loses_no_count(make_halves: Any, owners: list[int]) -> None:
    cap = SeriesCap(8, 8192)
    histograms = RecordHistograms(cap, by_process=False, identity_wait_s=2.0)
    for owner in owners:
        histograms.add(make_halves({"role": Role.SERVER, "cgroup_id": owner, "srtt_us": 5}), 0.0, by_peer=False)
    rtt = {series: h for series, h in found(histograms).items() if series.metric is names.TCP_RTT}
    assert sum(count(histogram) for histogram in rtt.values()) == len(owners)
    distinct = len(set(owners))
    assert len(rtt) == min(distinct, 9)
    assert (OTHER_OWNER in {series.group.owner for series in rtt}) == (distinct > 8)
    assert (cap.overflow.total() > 0) == (distinct * 4 > 8)


def test_streaming_calls_have_the_time_to_their_first_answer_and_nothing_else(
    histograms: RecordHistograms,
) -> None:
    streaming = {"excluded": Excluded.STREAMING, "stream_id": 7, "cgroup_id": 7}
    stages = (0, 0, 1_000_000, 10**12)
    records = [
        exchanges(1, Role.SERVER, stages=stages, **streaming),
        exchanges(1, Role.SERVER, stages=stages, **{**streaming, "flags": at_level(2)}),
        exchanges(1, Role.SERVER, stages=stages, **{**streaming, "stream_id": 0}),
    ]
    histograms.add(halves(np.concatenate(records)), 0.0, by_peer=False)
    (series, histogram), *others = histograms.series()
    assert not others
    assert series == Series(names.FIRST_ANSWER_DURATION, CART, "")
    assert (count(histogram), histogram.sum_s) == (5, 5e-3)
