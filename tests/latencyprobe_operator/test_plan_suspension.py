"""What stops all measuring at once."""

from typing import Any

from latencyprobe_operator.cluster.decoding import namespace
from latencyprobe_operator.cluster.objects import Namespace
from latencyprobe_operator.plan.suspension import suspended_by


def test_a_label_on_the_operators_own_namespace_suspends_and_no_other(make: Any) -> None:
    state = make.state(Namespace("shop", suspend=True), Namespace("latencyprobe"), namespaces=())
    assert "" == suspended_by(state, "latencyprobe", chart=False)
    state.put("namespaces", Namespace("latencyprobe", suspend=True))
    why = suspended_by(state, "latencyprobe", chart=False)
    assert "kubectl label namespace latencyprobe latencyprobe.dev/suspend-" in why


def test_the_chart_suspends_and_says_so(make: Any) -> None:
    assert "agent.suspend=true" in suspended_by(make.state(), "latencyprobe", chart=True)


def test_the_label_is_read_as_the_api_server_has_it() -> None:
    for value, suspend in (("true", True), ("false", False), ("yes", False)):
        document = b'{"metadata": {"name": "a", "labels": {"latencyprobe.dev/suspend": "%b"}}}' % value.encode()
        assert suspend == namespace(document).suspend
