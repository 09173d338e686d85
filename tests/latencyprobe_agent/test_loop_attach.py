"""attach.py: what is in force follows the plan and the cgroups of its pods, in time that follows what has changed."""

import resource
from pathlib import Path

import msgspec
import pytest

from latencyprobe.plan import Container, NodePlan, Pod, Role, SpanPolicy, Target, TargetPod
from latencyprobe.protocol import Protocol
from latencyprobe_agent.config import Config
from latencyprobe_agent.kernel.http2 import FakeHttp2Programs
from latencyprobe_agent.kernel.programs import FakePrograms
from latencyprobe_agent.loop.attach import Attachment
from latencyprobe_agent.loop.background import FakeBackground
from latencyprobe_agent.loop.control import FakeControl
from latencyprobe_agent.loop.http2 import Http2
from tests.support.cgroup_trees import ID, TREES, UID

CART = Target(
    "shop/p/cart", "shop", "p", "", "cart", Role.SERVER, (), 0, SpanPolicy(1, 0.0, 1), pods=(TargetPod(UID, (80,)),)
)
PLAN = NodePlan("n1", 1, "", (CART,), (), pods=(Pod(UID, "shop", "cart-0", (), (Container("cart", ID),), {}),))


def test_a_cgroup_that_comes_or_goes_compiles_no_plan(tmp_path: Path) -> None:
    """A container can make one each second, and a node's plan may take as long to compile."""
    tree, kernel = TREES["hybrid"](tmp_path), FakePrograms()
    config = Config(cgroup_root=tmp_path, survey_interval_s=0.0)
    http2 = Http2(FakeHttp2Programs, FakeBackground())  # type: ignore[arg-type, type-abstract]
    attachment = Attachment(kernel, http2, config, FakeControl(PLAN))  # type: ignore[arg-type]
    attachment.follow()
    nested = tree.container / "nested"
    nested.mkdir()
    attachment.follow()
    nested.rmdir()
    attachment.follow()
    first, second, third = kernel.applied
    assert second.scopes.keys() > first.scopes.keys()
    assert first.scopes == third.scopes
    assert first.rules
    assert first.rules is second.rules is third.rules


@pytest.mark.parametrize(("own", "selects", "heard"), [(UID, (), True), (UID, (CART,), False), ("", (), False)])
def test_the_agents_own_pod_is_the_canarys_unless_a_target_selects_it(
    tmp_path: Path, own: str, selects: tuple[Target, ...], heard: bool
) -> None:
    TREES["hybrid"](tmp_path)
    kernel, config = FakePrograms(), Config(cgroup_root=tmp_path, survey_interval_s=0.0, pod_uid=own)
    http2 = Http2(FakeHttp2Programs, FakeBackground())  # type: ignore[arg-type, type-abstract]
    control = FakeControl(msgspec.structs.replace(PLAN, targets=selects))
    Attachment(kernel, http2, config, control).follow()  # type: ignore[arg-type]
    assert kernel.tells_of_canary is heard


def test_who_cannot_be_looked_for_has_not_gone(tmp_path: Path) -> None:
    """No file can be opened: what is in force stays, and whose counts are read has not ended."""
    TREES["hybrid"](tmp_path)
    kernel, config = FakePrograms(), Config(cgroup_root=tmp_path, survey_interval_s=0.0)
    http2 = Http2(FakeHttp2Programs, FakeBackground())  # type: ignore[arg-type, type-abstract]
    attachment = Attachment(kernel, http2, config, FakeControl(PLAN))  # type: ignore[arg-type]
    attachment.follow()
    in_force = attachment.in_force
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            attachment.follow()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert attachment.in_force is in_force
    attachment.follow()
    assert [bool(rules.scopes) for rules in kernel.applied] == [True]


def test_a_plan_that_asks_for_http2_comes_into_force_once_its_programs_are_loaded(tmp_path: Path) -> None:
    TREES["hybrid"](tmp_path)
    kernel, config, control = FakePrograms(), Config(cgroup_root=tmp_path), FakeControl(PLAN)
    background, counted = FakeBackground(waits=True), []
    http2 = Http2(FakeHttp2Programs, background)  # type: ignore[arg-type, type-abstract]
    attachment = Attachment(kernel, http2, config, control)  # type: ignore[arg-type]
    attachment.follow()
    calls = msgspec.structs.replace(CART, protocol=Protocol.HTTP2)
    control.current = msgspec.structs.replace(PLAN, generation=2, targets=(calls,))
    for _ in range(2):
        attachment.follow(before=lambda: counted.append(1))
    assert attachment.in_force is not None
    assert (attachment.in_force.plan, len(kernel.applied), counted) == (PLAN, 1, [])
    background.go()
    attachment.follow(before=lambda: counted.append(1))
    assert (attachment.in_force.plan, len(kernel.applied), counted) == (control.current, 2, [1])
