"""Counters and histograms of evidence: by target set, owner and label, and how many there may be."""

from typing import Any

import numpy as np

from latencyprobe import plan
from latencyprobe.plan import NodePlan, SpanPolicy, Target
from latencyprobe_agent.measure.evidence_counts import Gained
from latencyprobe_agent.measure.rules import TargetSet
from latencyprobe_agent.signals.evidence import Evidence, Sample
from latencyprobe_agent.signals.join_keys import SENT_BYTES
from latencyprobe_agent.signals.table import RETRANSMITS
from latencyprobe_agent.telemetry.evidence_series import EvidenceSeries
from latencyprobe_agent.telemetry.metric_points import evidence_points
from latencyprobe_agent.telemetry.points import Histogram
from latencyprobe_agent.telemetry.record_histograms import OTHER_OWNER
from latencyprobe_agent.telemetry.series_cap import SeriesCap
from latencyprobe_agent.vocabulary import conventions as names
from latencyprobe_agent.vocabulary.records import COUNTS_KEY, EVIDENCE_COUNTS, FLOW_HEADER, Role

RECORD = np.dtype([("flow", FLOW_HEADER)])
CART = Target(
    "shop/p/cart", "shop", "p", "u", "cart", plan.Role.SERVER, (), 0, SpanPolicy(1, 1.0, 9), evidence=("retransmits",)
)
COUNTER, DURATION = names.EXCHANGES, names.TCP_RTT


def records(*rows: dict[str, Any]) -> Evidence:
    found = np.zeros(len(rows), RECORD)
    for header, row in zip(found["flow"], rows, strict=True):
        for name, value in {"role": Role.SERVER, "target_set": 1, "cgroup_id": 50, **row}.items():
            header[name] = value
    return Evidence(found, SENT_BYTES.of(found["flow"], seq=0, end_seq=1), np.ones(len(rows), np.bool_))


def test_counters_add_up_by_target_set_owner_and_label() -> None:
    series = EvidenceSeries(SeriesCap(10, 8192), by_process=False)
    evidence = records({"cgroup_id": 50}, {"cgroup_id": 50}, {"cgroup_id": 51}, {"cgroup_id": 50, "role": 0})
    reasons = np.array(["rto", "fast", "rto", "rto"])

    for _ in range(2):
        series.add(evidence, [Sample(COUNTER, np.arange(4), np.array([1, 2, 4, 8]), {names.REASON: reasons})])

    found = {(s.group.owner, s.labels[0][1]): value for s, value in series.series()}
    assert found == {(50, "rto"): 2, (50, "fast"): 4, (51, "rto"): 8}


def test_histograms_hold_every_value() -> None:
    series = EvidenceSeries(SeriesCap(10, 8192), by_process=True)
    evidence = records({"owner_tgid": 9}, {"owner_tgid": 9}, {"owner_tgid": 9})

    series.add(evidence, [Sample(DURATION, np.array([0, 2]), np.array([0.5, 0.0]))])
    series.add(evidence, [Sample(DURATION, np.array([1]), np.array([0.25]))])

    ((one, value),) = series.series()
    assert one.group.owner == 9
    assert isinstance(value, Histogram)
    assert (int(value.counts.sum()), value.zero, value.sum_s) == (2, 1, 0.75)


def test_series_above_the_cap_share_one_and_are_counted() -> None:
    cap = SeriesCap(2, 8192)
    series = EvidenceSeries(cap, by_process=False)
    evidence = records(*({"cgroup_id": owner} for owner in range(5)))

    for _ in range(2):
        series.add(evidence, [Sample(COUNTER, np.arange(5), np.ones(5, np.int64))])

    assert {s.group.owner: value for s, value in series.series()} == {0: 2, 1: 2, OTHER_OWNER: 6}
    assert cap.overflow.total() == 3, "each once, however often it comes again"
    series.forget(lambda group: group.owner == 0)
    series.add(records({"cgroup_id": 9}), [Sample(COUNTER, np.arange(1), np.ones(1, np.int64))])
    assert {s.group.owner for s, _ in series.series()} == {1, 9, OTHER_OWNER}


def test_a_sum_goes_on_when_a_signal_is_switched_off_and_on_which_makes_a_new_target_set() -> None:
    series = EvidenceSeries(SeriesCap(10, 8192), by_process=False)
    sets = {
        number: TargetSet((CART.id,), (), 0, CART.spans, "shop/p", flags) for number, flags in ((1, 1), (2, 0), (3, 1))
    }
    one = [Sample(COUNTER, np.arange(1), np.ones(1, np.int64))]

    sums = []
    for number in (1, 3):
        series.add(records({"target_set": number}), one)
        (point,) = evidence_points(series, NodePlan("n1", 1, "", (CART,), ()), sets)
        sums.append(point.value)

    assert sums == [1, 2]


def test_peers_above_the_cap_share_one_series_too() -> None:
    series = EvidenceSeries(SeriesCap(2, 8192), by_process=False)
    services = np.array([f"service-{i}" for i in range(9)])

    sample = Sample(COUNTER, np.arange(9), np.ones(9, np.int64), by_peer=True)
    series.add(records(*[{}] * 9), [sample], services)

    assert sorted(str(dict(one.labels)[names.SERVICE_PEER_NAME]) for one, _ in series.series()) == [
        names.OTHER,
        "service-0",
        "service-1",
    ]


def test_what_the_kernel_counted_is_added_to_the_same_series() -> None:
    series = EvidenceSeries(SeriesCap(10, 8192), by_process=False)
    keys = np.array([(50, 1, Role.SERVER), (51, 1, Role.CLIENT), (52, 1, Role.UNKNOWN)], COUNTS_KEY)
    values = np.zeros(3, EVIDENCE_COUNTS)
    values["segs_unrecorded"] = 1, 2, 4
    labels = {names.DIRECTION: np.array(["response"]), names.REASON: np.array(["unrecorded"])}
    recorded = Sample(names.TCP_RETRANSMITS, np.arange(1), np.ones(1, np.int64), labels)

    series.add(records({"cgroup_id": 50}), [recorded])
    for _ in range(2):
        series.add_counted(Gained(RETRANSMITS, keys, values))

    assert {s.group.owner: value for s, value in series.series()} == {50: 3, 51: 4}
