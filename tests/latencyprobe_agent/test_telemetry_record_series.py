"""Evidence counts by the service at the other end once that is known, and after the wait without."""

from typing import Any

import numpy as np

from latencyprobe.plan import Identity, NodePlan, SpanPolicy, Target
from latencyprobe.plan import Role as Perspective
from latencyprobe_agent.directory.peers import FakePeers
from latencyprobe_agent.identity.resources import ProcessResources
from latencyprobe_agent.measure.evidence import EvidenceBatch
from latencyprobe_agent.measure.matches import packed
from latencyprobe_agent.measure.rules import Rules, TargetSet
from latencyprobe_agent.measure.turn import InForce
from latencyprobe_agent.signals.table import RETRANSMITS
from latencyprobe_agent.telemetry.exemplar_series import ExemplarSeries
from latencyprobe_agent.telemetry.record_series import RecordSeries
from latencyprobe_agent.telemetry.series_cap import SeriesCap
from latencyprobe_agent.vocabulary import conventions as names
from latencyprobe_agent.vocabulary.records import RETRANSMIT, RetransmitKind, Role

CART = Target("shop/p/cart", "shop", "p", "uid", "cart", Perspective.SERVER, (), 0, SpanPolicy(1, 1.0, 100))
IN_FORCE = InForce(
    NodePlan("n1", 1, "", (CART,), ()),
    Rules(sets={1: TargetSet((CART.id,), (), 0, CART.spans, "shop/p")}),
    ProcessResources("n1"),
)


def resent(*peers: str) -> EvidenceBatch:
    records = np.zeros(len(peers), RETRANSMIT)
    records["kind"], records["segs"] = RetransmitKind.SEGMENT, 1
    records["flow"]["target_set"], records["flow"]["role"] = 1, Role.SERVER
    for record, peer in zip(records, peers, strict=True):
        record["flow"]["peer_addr"] = np.frombuffer(packed(peer), np.uint8)
    return EvidenceBatch(RETRANSMITS.switch, RETRANSMITS.explains, RETRANSMITS.columns(records), None, None)


def by_service(series: RecordSeries) -> dict[str, Any]:
    points = [
        point for point in series.points(IN_FORCE, set(), {}) if point.metric.name == "latencyprobe.tcp.retransmits"
    ]
    return {str(dict(point.labels)[names.SERVICE_PEER_NAME]): point.value for point in points}


def test_retransmits_count_by_the_service_at_the_other_end_once_it_is_known(make_turn: Any) -> None:
    peers = FakePeers()
    series = RecordSeries(SeriesCap(10, 8192), 2.0, peers, ExemplarSeries(0))
    series.add(make_turn(IN_FORCE, evidence=(resent("10.0.0.2", "192.0.2.1"),)))
    peers.identities["10.0.0.2"] = Identity("10.0.0.2", service="web")
    series.name_peers(1.0)
    assert by_service(series) == {}
    series.name_peers(3.0)
    assert by_service(series) == {"web": 1, names.UNRESOLVED: 1}


def test_what_waits_of_a_target_set_that_leaves_counts_at_once(make_turn: Any) -> None:
    series = RecordSeries(SeriesCap(10, 8192), 2.0, FakePeers(), ExemplarSeries(0))
    series.add(make_turn(IN_FORCE, evidence=(resent("10.0.0.2"),)))
    series.name_peers(1.0, {2})
    assert {} == by_service(series)
    series.name_peers(1.0, {1})
    assert {"unresolved": 1} == by_service(series)
