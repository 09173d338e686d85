"""The operator's own metrics are valid, and name no tenant."""

from collections import Counter

from prometheus_client.parser import text_string_to_metric_families

from latencyprobe_operator.metrics import OperatorCollector, Sources, exposition
from latencyprobe_operator.plan.agents import NodeState


def test_figures_come_from_their_sources_when_asked() -> None:
    requests: Counter[tuple[str, int]] = Counter()
    sources = Sources(
        informers=list,
        node_states=lambda: [NodeState.READY, NodeState.READY, NodeState.MISSING],
        probes=lambda: 3,
        without_room=lambda: 2,
        suspended=lambda: True,
        left_out=lambda: Counter(pods=11),
        streams=lambda: 2,
        requests=requests,
        connections=lambda: 9,
        connections_cut=lambda: 10,
        rows_accepted=lambda: 7,
        rows_dropped=Counter(not_asked=1),
        lookups=Counter(too_many=8),
        commits=lambda: 5,
        upload_s=lambda: 20.0,
        remote_joins=Counter(answered=6),
        writes=Counter({("label", "ok"): 4}),
        evaluations=Counter(ok=8, failed=1),
        loop_failures=Counter({("evaluation", "StoreError"): 2}),
        store_works=lambda: False,
        store_failures=Counter(StoreFull=3),
        damaged_files=lambda: 1,
        expected_forgotten=lambda: 4,
        may_write=lambda: True,
        unconfirmed_s=lambda: 300,
    )
    expose = exposition(OperatorCollector(sources))
    requests["/v1/identities", 200] += 5
    found = {
        (sample.name.removeprefix("latencyprobe_operator_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(expose().decode())
        for sample in family.samples
    }
    assert found["nodes", "ready"] == 2
    assert found["nodes", "failed"] == 0
    assert (found["suspended",], found["objects_left_out", "pods"]) == (1, 11)
    assert (found["connections",], found["connections_cut_total",]) == (9, 10)
    assert found["directory_requests_total", "/v1/identities", "200"] == 5
    assert found["sli_rows_dropped_total", "not_asked"] == 1
    assert found["identity_lookups_total", "too_many"] == 8
    assert (found["sli_commits_total",], found["sli_upload_interval_seconds",]) == (5, 20)
    assert found["remote_join_keys_total", "answered"] == 6
    assert found["writes_total", "label", "ok"] == 4
    assert found["loop_failures_total", "StoreError", "evaluation"] == 2
    assert (found["probes",], found["probes_without_room",]) == (3, 2)
    assert (found["store_works",], found["store_failures_total", "StoreFull"]) == (0, 3)
    assert (found["store_damaged_files",], found["expected_time_forgotten_total",]) == (1, 4)
    assert (found["may_write",], found["unconfirmed_seconds",]) == (1, 300)
    assert found["evaluations_total", "failed"] == 1
