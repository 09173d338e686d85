"""Taints against a DaemonSet's tolerations."""

import pytest

from latencyprobe_operator.cluster.objects import Node, Taint
from latencyprobe_operator.config import Toleration
from latencyprobe_operator.plan.taints import repelling

DEDICATED = Taint("dedicated", "db", "NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        (Toleration(operator="Exists"), True),
        (Toleration(key="dedicated", operator="Exists"), True),
        (Toleration(key="dedicated", operator="Exists", effect="NoSchedule"), True),
        (Toleration(key="dedicated", value="db"), True),
        (Toleration(key="dedicated", operator="", value="db"), True),
        (Toleration(key="dedicated", operator="Exists", effect="NoExecute"), False),
        (Toleration(key="dedicated", value="web"), False),
        (Toleration(key="other", operator="Exists"), False),
        (Toleration(key="dedicated", operator="Gt", value="db"), False),
    ],
)
def test_toleration_is_for_a_taint_by_key_value_and_effect(toleration: Toleration, tolerated: bool) -> None:
    node = Node("u", "n1", taints=(DEDICATED,))
    assert repelling(node, (toleration,)) == (() if tolerated else (DEDICATED,))


def test_every_taint_must_be_tolerated() -> None:
    maintenance = Taint("maintenance", "", "NoExecute")
    node = Node("u", "n1", taints=(DEDICATED, maintenance))
    assert repelling(node, (Toleration(key="dedicated", operator="Exists"),)) == (maintenance,)
    assert [str(taint) for taint in repelling(node, ())] == ["dedicated=db:NoSchedule", "maintenance:NoExecute"]


def test_cordon_and_pressure_keep_no_agent_away() -> None:
    keys = ("unschedulable", "memory-pressure", "disk-pressure", "pid-pressure")
    taints = tuple(Taint(f"node.kubernetes.io/{key}", "", "NoSchedule") for key in keys)
    assert repelling(Node("u", "n1", taints=taints), ()) == ()
