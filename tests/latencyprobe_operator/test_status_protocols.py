"""Targets whose calls are not told by the protocol that they have: which ones, where, and why."""

from typing import Any

import pytest

from latencyprobe.plan import TargetStatus
from latencyprobe.variants import HTTP2
from latencyprobe_operator.status.placement import Placement


@pytest.fixture
def by_stream(make: Any) -> Any:
    """A LatencyProbe whose target says HTTP2, and a pod of it."""
    return make.planned(make.pod("cart-1"), clients={"scope": "None"}, **of(make, "HTTP2"))


def of(make: Any, protocol: str) -> dict[str, Any]:
    (target,) = make.document()["spec"]["targets"]
    return {"targets": [target | {"protocol": protocol}]}


def told(planned: Any, now_s: float) -> dict[str, str]:
    placement = Placement(planned.state, "latencyprobe-agents", ())
    found = planned.conditions(now_s, placement)
    return {one.type: one.message for one in found if one.type.startswith("Protocol")}


def seen(**classes: int) -> tuple[TargetStatus, ...]:
    return (TargetStatus("shop/checkout/cart", sum(classes.values()), dict(classes), {}),)


def test_calls_that_are_told_by_stream_need_no_condition(by_stream: Any) -> None:
    by_stream.report("n1", 5, variants={f"{HTTP2}.send": "tp_btf"}, targets=seen(unary=7, streaming=1, unknown=2))
    assert told(by_stream, 6) == {}


def test_connections_of_something_else_are_counted(by_stream: Any) -> None:
    by_stream.report("n1", 5, targets=seen(unary=7, pingpong=2, pipelined=1, setup=4))
    assert told(by_stream, 6) == {
        "ProtocolMismatch": "30 % of the calls of target cart came on connections that are no HTTP/2 in clear text, "
        "and are measured by turns: TLS and the upgrade from HTTP/1.1 are not followed"
    }


def test_kernels_that_cannot_tell_streams_are_named(by_stream: Any) -> None:
    by_stream.report("n1", 5, variants={HTTP2: "unsupported"})
    assert told(by_stream, 6) == {
        "ProtocolUnsupported": "the kernel of n1 gives no way to tell streams of HTTP/2 (Linux 6.12 and newer do): "
        "there its connections are measured by turns, and counted as multiplexed where calls overlap"
    }


def test_targets_of_turns_are_none_of_it(make: Any) -> None:
    planned = make.planned(make.pod("cart-1"), clients={"scope": "None"}, **of(make, "Turns"))
    planned.report("n1", 5, variants={HTTP2: "unsupported"}, targets=seen(pingpong=2))
    assert told(planned, 6) == {}


def test_counts_that_cannot_be_keep_nobody_from_being_told(by_stream: Any) -> None:
    """An agent may say anything; the status is of all nodes."""
    by_stream.report("n1", 5, targets=seen(unary=-3, pingpong=3, pipelined=-10))
    assert told(by_stream, 6)["ProtocolMismatch"].startswith("100 % of the calls of target cart came")
