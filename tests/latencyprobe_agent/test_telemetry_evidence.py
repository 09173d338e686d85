"""Evidence on its way out: events on the right span, metrics by label, shares in the report's rows."""

from typing import Any

import msgspec
import numpy as np
import pytest

from latencyprobe import plan
from latencyprobe.plan import NodePlan, SpanPolicy, Target
from latencyprobe_agent.directory.peers import Peers
from latencyprobe_agent.identity.resources import FakeResources
from latencyprobe_agent.measure.evidence import Joined
from latencyprobe_agent.measure.evidence_join import EvidenceJoin
from latencyprobe_agent.measure.recent import RecentHalves
from latencyprobe_agent.measure.rules import TargetSet
from latencyprobe_agent.measure.sampling import Reason, Sampled
from latencyprobe_agent.signals.evidence import Evidence, Explains, Sample
from latencyprobe_agent.signals.join_keys import SENT_BYTES
from latencyprobe_agent.signals.retransmits import EXPLAINS
from latencyprobe_agent.telemetry import span_encoder
from latencyprobe_agent.telemetry.evidence_series import EvidenceSeries
from latencyprobe_agent.telemetry.metric_points import evidence_points
from latencyprobe_agent.telemetry.points import Histogram
from latencyprobe_agent.telemetry.record_histograms import OTHER_OWNER
from latencyprobe_agent.telemetry.waiting import WaitingRoom
from latencyprobe_agent.vocabulary import conventions as names
from latencyprobe_agent.vocabulary.records import FLOW_HEADER, ExchangeFlags, Role
from tests.support.otlp import spans, values

RECORD = np.dtype([("flow", FLOW_HEADER), ("segs", "u4")])
CART = Target(
    "shop/p/cart", "shop", "p", "u", "cart", plan.Role.SERVER, (), 0, SpanPolicy(1, 1.0, 9), evidence=("retransmits",)
)
LOST = Explains(
    event="lost",
    fields=lambda record: {"segs": int(record["segs"])},
    attributes=lambda records: {names.RETRANSMITS: int(records["segs"].sum())},
    samples=lambda _: [],
    describe=lambda record: ("lost", int(record["segs"]), 0),
    waits=EXPLAINS.waits,
)
COUNTER, DURATION = names.EXCHANGES, names.TCP_RTT


def records(*rows: dict[str, Any]) -> Evidence:
    found = np.zeros(len(rows), RECORD)
    for record, row in zip(found, rows, strict=True):
        for name, value in {"sock_cookie": 7, "role": Role.SERVER, "target_set": 1, "cgroup_id": 50, **row}.items():
            into = record["flow"] if name in FLOW_HEADER.names else record
            if name not in ("seq", "end_seq"):
                into[name] = value
    ranges = [(row.get("seq", 100), row.get("end_seq", 150)) for row in rows]
    seq, end_seq = np.array(ranges, "u4").T
    return Evidence(found, SENT_BYTES.of(found["flow"], seq=seq, end_seq=end_seq), np.ones(len(rows), np.bool_))


@pytest.fixture
def answered(make_halves: Any) -> Any:
    """A server half that sent bytes 100..200 and then closed."""
    stamps = {"stages": (10, 20, 30, 40), "response_seq": 100, "response_bytes": 100, "sock_cookie": 7}
    return make_halves({"role": Role.SERVER, "flags": ExchangeFlags.CLOSED, **stamps})


def joined(halves: Any, evidence: Evidence) -> Joined:
    join = EvidenceJoin(RecentHalves(), SENT_BYTES, LOST.waits)
    join.recent.keep(halves)
    found = join.join(evidence, 2_000_000_000)
    assert found is not None
    return found


def test_the_span_shows_when_what_was_resent_and_how_long_it_waited(answered: Any) -> None:
    room = WaitingRoom(identity_wait_s=2.0, join_wait_s=0.25, capacity=10)
    room.admit(Sampled(answered, np.full(1, Reason.SLOW, np.uint8), np.ones(1)), {1: CART}, 1.0)

    room.note_evidence(LOST, joined(answered, records({"segs": 2, "boot_ns": 1_200_000_100})))
    (one,) = room.take_ready(Peers(None), 9.0)

    requests = span_encoder.requests([one], span_encoder.Context(FakeResources(), 10**18))
    ((_, span),) = spans(body for body, _ in requests)
    event = span.events[-1]
    assert (event.name, event.time_unix_nano) == ("lost", 10**18 + 1_200_000_100)
    assert values(event.attributes) == {"segs": 2, names.WAIT: pytest.approx(0.2)}
    assert values(span.attributes)[names.RETRANSMITS] == 2


def test_a_server_that_closed_after_its_answer_waits_a_second_for_evidence(answered: Any) -> None:
    room = WaitingRoom(identity_wait_s=0.1, join_wait_s=0.1, capacity=10)
    everything = Sampled(answered, np.full(1, Reason.SLOW, np.uint8), np.ones(1))

    room.admit(everything, {1: CART}, 1.0)
    room.admit(everything, {1: msgspec.structs.replace(CART, evidence=())}, 1.0)

    assert len(room.take_ready(Peers(None), 1.9)) == 1
    assert len(room.take_ready(Peers(None), 2.0)) == 1


def test_counters_add_up_by_target_set_owner_and_label() -> None:
    series = EvidenceSeries(10, by_process=False)
    evidence = records({"cgroup_id": 50}, {"cgroup_id": 50}, {"cgroup_id": 51}, {"cgroup_id": 50, "role": 0})
    reasons = np.array(["rto", "fast", "rto", "rto"])

    for _ in range(2):
        series.add(evidence, [Sample(COUNTER, np.arange(4), np.array([1, 2, 4, 8]), {names.REASON: reasons})])

    found = {(s.group.owner, s.labels[0][1]): value for s, value in series.series()}
    assert found == {(50, "rto"): 2, (50, "fast"): 4, (51, "rto"): 8}


def test_histograms_hold_every_value() -> None:
    series = EvidenceSeries(10, by_process=True)
    evidence = records({"owner_tgid": 9}, {"owner_tgid": 9}, {"owner_tgid": 9})

    series.add(evidence, [Sample(DURATION, np.array([0, 2]), np.array([0.5, 0.0]))])
    series.add(evidence, [Sample(DURATION, np.array([1]), np.array([0.25]))])

    ((one, value),) = series.series()
    assert one.group.owner == 9
    assert isinstance(value, Histogram)
    assert (int(value.counts.sum()), value.zero, value.sum_s) == (2, 1, 0.75)


def test_series_above_the_cap_share_one_and_are_counted() -> None:
    series = EvidenceSeries(2, by_process=False)
    evidence = records(*({"cgroup_id": owner} for owner in range(5)))

    for _ in range(2):
        series.add(evidence, [Sample(COUNTER, np.arange(5), np.ones(5, np.int64))])

    assert {s.group.owner: value for s, value in series.series()} == {0: 2, 1: 2, OTHER_OWNER: 6}
    assert series.overflow == 3, "each once, however often it comes again"
    series.forget({0})
    series.add(records({"cgroup_id": 9}), [Sample(COUNTER, np.arange(1), np.ones(1, np.int64))])
    assert {s.group.owner for s, _ in series.series()} == {1, 9, OTHER_OWNER}


def test_a_sum_goes_on_when_a_signal_is_switched_off_and_on_which_makes_a_new_target_set() -> None:
    series = EvidenceSeries(10, by_process=False)
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
    series = EvidenceSeries(2, by_process=False)
    services = np.array([f"service-{i}" for i in range(9)])

    sample = Sample(COUNTER, np.arange(9), np.ones(9, np.int64), by_peer=True)
    series.add(records(*[{}] * 9), [sample], services)

    assert sorted(str(dict(one.labels)[names.SERVICE_PEER_NAME]) for one, _ in series.series()) == [
        names.OTHER,
        "service-0",
        "service-1",
    ]
