"""The programs for HTTP/2 are there while a target in force asks for them; a kernel that refuses them is told of."""

from typing import Any

import pytest

from latencyprobe.errors import Unsupported
from latencyprobe.plan import SpanPolicy, TargetPod
from latencyprobe.protocol import Protocol
from latencyprobe.variants import HTTP2
from latencyprobe_agent.kernel.http2 import FakeHttp2Programs
from latencyprobe_agent.loop.background import FakeBackground
from latencyprobe_agent.loop.http2 import Http2
from latencyprobe_agent.measure.rules import Rules, TargetSet, compile_rules
from tests.support.plans import plan_of, replicas_of, target

POLICY = SpanPolicy(10**9, 0.0, 100)


def rules(protocol: Protocol, *, in_force: bool = True) -> Rules:
    one = TargetSet(("d/p/echo",), (), 0, POLICY, "d/p", protocol=protocol)
    return Rules(sets={1: one}, rules={(bytes(16), 1, 80, 0): 1} if in_force else {})  # type: ignore[dict-item]


def attached(http2: Http2, asking: Rules) -> bool:
    assert http2.ready(asking, wait=False)
    return http2.attached


@pytest.fixture
def made() -> list[Any]:
    return []


@pytest.fixture
def http2(made: list[Any]) -> Http2:
    def attach() -> Any:
        made.append(FakeHttp2Programs())
        made[-1].lost_records = {"state": 3}
        return made[-1]

    return Http2(attach, FakeBackground())


def test_nothing_is_attached_for_targets_of_turns_or_sets_that_no_rule_names(http2: Http2, made: list[Any]) -> None:
    assert not attached(http2, rules(Protocol.TURNS))
    assert not attached(http2, rules(Protocol.HTTP2, in_force=False))
    assert not made
    assert http2.variants == http2.lost == {}


def test_they_are_attached_once_and_stay_until_nobody_asks(http2: Http2, made: list[Any]) -> None:
    assert attached(http2, rules(Protocol.HTTP2))
    assert attached(http2, rules(Protocol.HTTP2))
    assert http2.variants == {f"{HTTP2}.send": "tp_btf"}
    http2.detach(rules(Protocol.HTTP2))
    assert [one.closed for one in made] == [False]
    assert attached(http2, rules(Protocol.TURNS)), "until the rules are in force"
    http2.detach(rules(Protocol.TURNS))
    assert [one.closed for one in made] == [True]
    assert http2.lost == {"state": 3}, "what was lost before stays counted"
    attached(http2, rules(Protocol.HTTP2))
    assert http2.lost == {"state": 6}


def test_where_the_last_pod_has_gone_they_wait_for_the_next(http2: Http2, made: list[Any]) -> None:
    """What it says while they are loaded would not be measured."""
    nobody = rules(Protocol.HTTP2, in_force=False)
    for one in (rules(Protocol.HTTP2), nobody, rules(Protocol.HTTP2), nobody):
        assert attached(http2, one)
        http2.detach(one)
    assert [one.closed for one in made] == [False]


def test_they_go_where_replicas_run_too(http2: Http2, made: list[Any]) -> None:
    """Rules of replicas name no target set."""
    replicas, pods = replicas_of("a", [("10.0.0.1", 80), ("10.0.0.2", 80)]), (TargetPod("a", (80,)),)
    calls, turns = (target(pods=pods, replicas=replicas, protocol=one) for one in (Protocol.HTTP2, Protocol.TURNS))
    before = compile_rules(plan_of(calls), {"a": [1]})
    assert attached(http2, before)
    http2.detach(compile_rules(plan_of(turns), {"a": [1]}, before))
    assert [one.closed for one in made] == [True]


def test_a_kernel_that_refuses_is_asked_once_while_they_are_asked_for() -> None:
    asked = []

    def refuse() -> Any:
        asked.append(1)
        raise Unsupported("KernelUnsupported", "no bpf_dynptr_from_skb")

    http2 = Http2(refuse, FakeBackground())
    for _ in range(3):
        assert not attached(http2, rules(Protocol.HTTP2))
    assert len(asked) == 1
    assert http2.variants == {HTTP2: "unsupported"}
    attached(http2, rules(Protocol.TURNS))
    assert http2.variants == {}
    attached(http2, rules(Protocol.HTTP2))
    assert len(asked) == 2


def test_what_nobody_wants_any_more_while_it_is_loaded_is_closed_when_it_is_there(made: list[Any]) -> None:
    """Nobody waits for it: the rings are to be drained meanwhile."""
    background = FakeBackground(waits=True)
    http2 = Http2(lambda: made.append(FakeHttp2Programs()) or made[-1], background)  # type: ignore[func-returns-value]
    assert not http2.ready(rules(Protocol.HTTP2), wait=False)
    (begun,) = background.begun
    assert begun.set_running_or_notify_cancel()
    assert http2.ready(rules(Protocol.TURNS), wait=False)
    http2.detach(rules(Protocol.TURNS))
    begun.set_result(late := FakeHttp2Programs())
    assert late.closed
    assert not http2.attached


def test_what_is_loaded_is_waited_for_only_where_nothing_is_in_force_yet(made: list[Any]) -> None:
    background = FakeBackground(waits=True)
    http2 = Http2(lambda: made.append(FakeHttp2Programs()) or made[-1], background)  # type: ignore[func-returns-value]
    for _ in range(2):
        assert not http2.ready(rules(Protocol.HTTP2), wait=False)
    background.go()
    assert http2.ready(rules(Protocol.HTTP2), wait=False)
    assert (http2.attached, len(made)) == (True, 1)
    http2.detach(rules(Protocol.TURNS))

    other = Http2(lambda: made.append(FakeHttp2Programs()) or made[-1], background)  # type: ignore[func-returns-value]
    other.ready(rules(Protocol.HTTP2), wait=False)
    background.go()
    other.detach(rules(Protocol.TURNS))
    assert [one.closed for one in made] == [True, True], "nobody asks for them any more"
    assert not other.attached
