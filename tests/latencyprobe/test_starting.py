"""starting.py: a LatencyProbe to begin with is one that `validate` accepts, whatever it was made of."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latencyprobe import parsing, spec, starting
from latencyprobe.errors import SpecError
from latencyprobe.plan import Role
from latencyprobe.protocol import Protocol

WEB = {"matchLabels": {"app": "web"}}


def service(*ports: dict[str, Any], name: str = "web", **fields: Any) -> dict[str, Any]:
    of = {"selector": {"app": "web"}, "ports": list(ports), **fields}
    return {"kind": "Service", "metadata": {"name": name, "namespace": "shop"}, "spec": of}


def deployment(*containers: list[dict[str, Any]]) -> dict[str, Any]:
    template = {"spec": {"containers": [{"ports": ports} if ports else {} for ports in containers]}}
    of = {"selector": WEB, "template": template}
    return {"kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"}, "spec": of}


def targets(document: object) -> list[spec.TargetSpec]:
    return list(parsing.parse(document).spec.targets)


@given(st.lists(st.integers(1, 65535), min_size=1, max_size=32))
def test_ports_are_targets_with_an_objective_each(ports: list[int]) -> None:
    probe = parsing.parse(starting.of_ports(ports))
    assert [target.ports for target in probe.spec.targets] == [(port,) for port in dict.fromkeys(ports)]
    assert [one.target for one in probe.spec.objectives] == [target.name for target in probe.spec.targets]
    assert {target.role for target in probe.spec.targets} == {Role.SERVER}


def test_what_listens_by_custom_has_what_it_needs() -> None:
    postgres, grpc, redis = targets(starting.of_ports([5432, 50051, 6379]))
    assert postgres.setup_turns == 4
    assert (grpc.protocol, redis.protocol) == (Protocol.HTTP2, Protocol.TURNS)
    (told,) = targets(starting.of_ports([50051], protocol="Turns"))
    assert told.protocol is Protocol.TURNS


def test_a_threshold_is_that_of_every_objective() -> None:
    probe = parsing.parse(starting.of_ports([80, 81], threshold="25ms"))
    assert {one.threshold for one in probe.spec.objectives} == {"25ms"}


@pytest.mark.parametrize("name", ["web", "c" * 63])
def test_what_callers_saw_is_an_objective_beside_each_of_the_servers(name: str) -> None:
    found = service({"port": 80}, {"port": 9000, "name": "grpc"}, name=name)
    probe = parsing.parse(starting.of_object(found, callers=True))
    sides = [(one.target, one.perspective) for one in probe.spec.objectives]
    assert sides == [(target.name, side) for target in probe.spec.targets for side in (None, Role.CLIENT)]
    assert len({one.name for one in probe.spec.objectives}) == 4


def test_a_service_is_its_selector_and_the_ports_of_its_pods() -> None:
    document = starting.of_object(
        service({"port": 80, "targetPort": "http"}, {"port": 9000}, {"port": 53, "protocol": "UDP"})
    )
    (target,) = targets(document)
    assert document["metadata"] == {"name": "web", "namespace": "shop"}
    assert dict(target.pod_selector.match_labels) == {"app": "web"}
    assert target.ports == ("http", 9000)


@pytest.mark.parametrize("words", [{"appProtocol": "grpc"}, {"appProtocol": "kubernetes.io/h2c"}, {"name": "grpc-api"}])
def test_ports_that_say_grpc_are_told_by_stream(words: dict[str, str]) -> None:
    (alone,) = targets(starting.of_object(service({"port": 9000, **words})))
    assert (alone.name, alone.protocol) == ("web", Protocol.HTTP2)
    by_turns, by_stream = targets(starting.of_object(service({"port": 80}, {"port": 9000, **words})))
    assert (by_turns.name, by_turns.ports, by_turns.protocol) == ("web-tcp", (80,), Protocol.TURNS)
    assert (by_stream.name, by_stream.ports, by_stream.protocol) == ("web-grpc", (9000,), Protocol.HTTP2)


def test_a_workload_is_its_selector_and_the_ports_of_its_containers() -> None:
    (target,) = targets(starting.of_object(deployment([{"containerPort": 8080}], [{"containerPort": 9090}])))
    assert dict(target.pod_selector.match_labels) == {"app": "web"}
    assert target.ports == (8080, 9090)


def test_a_workload_that_names_no_ports_is_measured_on_all_it_listens_on() -> None:
    (target,) = targets(starting.of_object(deployment([])))
    assert target.ports == ()


def test_a_long_name_with_dots_is_cut_to_what_names_may_be() -> None:
    (target,) = targets(starting.of_object(service({"port": 80}, name="a.b" + "c" * 80)))
    assert target.name == "a-b" + "c" * 60


def test_a_long_name_with_both_kinds_of_ports_has_names_that_differ() -> None:
    document = starting.of_object(service({"port": 80}, {"port": 9000, "name": "grpc"}, name="c" * 63))
    assert len(targets(document)) == 2


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (service({"port": 53, "protocol": "UDP"}), "web: spec.ports: has no TCP port"),
        (service(selector={}), "web: spec.selector: is empty: pods of a Service without one are not known"),
        (
            {"kind": "Node", "metadata": {"name": "n1"}},
            "n1: Node selects no pods: give a Service, or one of Deployment",
        ),
    ],
)
def test_what_selects_no_pods_is_refused(found: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as told:
        starting.of_object(found)
    assert str(told.value).startswith(message)
