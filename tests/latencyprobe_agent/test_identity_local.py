from typing import Any

import msgspec
import pytest

from latencyprobe import parsing, spec
from latencyprobe.errors import SpecError
from latencyprobe.plan import NodePlan, Role
from latencyprobe_agent.identity.local import LocalPlan, local_plan, pairing_key

KEY = b"k" * 32


def probe(name: str = "redis", **spec_fields: Any) -> spec.LatencyProbe:
    spec_fields.setdefault("targets", [{"name": "redis", "ports": [6379]}])
    document = {
        "apiVersion": "latencyprobe.dev/v1alpha1",
        "kind": "LatencyProbe",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": spec_fields,
    }
    return parsing.parse(document)


def planned(*probes: spec.LatencyProbe) -> LocalPlan:
    return local_plan(probes, "host", KEY)


def test_a_target_holds_for_every_socket_of_the_host() -> None:
    objectives = [{"name": "fast", "target": "redis", "threshold": "5ms", "goal": "99"}]
    plan, notices = planned(probe(objectives=objectives))
    target = plan.targets[0]
    assert plan.host
    assert (target.id, target.ports, target.clients) == ("shop/redis/redis", (6379,), True)
    assert (target.thresholds_ns, target.spans.slower_than_ns) == ((5_000_000,), 5_000_000)
    assert [("shop/redis/fast", "shop/redis/redis", Role.SERVER)] == [
        (objective.id, objective.target, objective.perspective) for objective in plan.objectives
    ]
    assert notices == ()


def test_scope_none_leaves_the_callers_out() -> None:
    assert not planned(probe(clients={"scope": "None"})).plan.targets[0].clients


def test_a_pod_selector_is_noticed_once_for_all_targets() -> None:
    selecting = {"podSelector": {"matchLabels": {"app": "x"}}, "ports": [80]}
    notices = planned(probe(targets=[{"name": "a", **selecting}, {"name": "b", **selecting}])).notices
    assert len(notices) == 1
    assert "shop/redis/a, shop/redis/b" in notices[0]


def test_a_named_port_is_refused_with_its_path() -> None:
    targets = [{"name": "a", "ports": [80]}, {"name": "b", "ports": [81, "http"]}]
    with pytest.raises(SpecError, match=r"'http'.*number") as refused:
        planned(probe(targets=targets))
    assert refused.value.path == "spec.targets[1].ports[1]"


def test_a_suspended_probe_is_not_measured_and_says_so() -> None:
    plan, notices = planned(probe(suspend=True), probe("other"))
    assert ["shop/other/redis"] == [target.id for target in plan.targets]
    assert "suspended" in notices[0]


def test_the_plan_survives_the_wire() -> None:
    plan = planned(probe()).plan
    assert msgspec.json.decode(msgspec.json.encode(plan), type=NodePlan) == plan


def test_the_digest_is_the_same_under_another_key() -> None:
    assert local_plan([probe()], "host", KEY).plan.digest == local_plan([probe()], "host", b"x" * 32).plan.digest


def test_two_hosts_agree_on_a_shared_key_and_on_no_other() -> None:
    assert pairing_key("secret") == pairing_key("secret")
    assert pairing_key("secret") != pairing_key("Secret")
    assert pairing_key(None) != pairing_key(None)
    assert len(pairing_key(None)) == len(pairing_key("")) == 32
