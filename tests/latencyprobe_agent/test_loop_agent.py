import errno
import threading
import time
from contextlib import nullcontext
from pathlib import Path

import msgspec
import pytest

from latencyprobe.errors import Unsupported
from latencyprobe.plan import NodePlan, SpanPolicy, Target
from latencyprobe.plan import Role as Perspective
from latencyprobe_agent.config import Config
from latencyprobe_agent.kernel.programs import FakePrograms, Programs
from latencyprobe_agent.loop import loop as loop_
from latencyprobe_agent.loop.agent import Agent, Audience, load_programs
from latencyprobe_agent.loop.control import FakeControl
from latencyprobe_agent.measure.turn import Turn
from tests.support.waiting import wait_until

POLICY = SpanPolicy(1, 1.0, 100)
CART = Target("shop/p/cart", "shop", "p", "uid", "cart", Perspective.SERVER, (), 0, POLICY, ports=(80,))
WEB = Target("shop/p/web", "shop", "p", "uid", "web", Perspective.SERVER, (), 0, POLICY, ports=(81,))
DEADLINE_S = 30
PLAN = NodePlan("n1", 4, "", (CART, WEB), (), host=True)
NOBODY = Audience(lambda start: nullcontext(()))


def test_where_nothing_can_be_measured_the_agent_stays_says_why_and_tries_again(tmp_path: Path) -> None:
    operator = FakeControl(PLAN, patient=True)
    agent = Agent(Config(bpf_dir=tmp_path, instance="i", retry_load_s=0.05, tick_s=0.01), operator, NOBODY)
    thread = threading.Thread(target=agent.run)
    thread.start()
    wait_until(lambda: len(operator.statuses) >= 3, "three reports of why not")
    assert agent.health.alive
    assert not agent.health.measuring
    agent.stop()
    thread.join(DEADLINE_S)
    assert not thread.is_alive()
    assert operator.stopped
    status = operator.statuses[0]
    assert status.reason in ("ObjectUnreadable", "MissingCapability")
    assert status.error
    assert (status.instance, status.generation, status.targets) == ("i", 0, ())


def test_a_folder_that_cannot_be_used_is_told_beside_parts_that_fail() -> None:
    operator = FakeControl(PLAN, patient=True)
    operator.failing = {"spool": "/var/lib/latencyprobe/counts.db: the disk is full"}
    agent = Agent(Config(tick_s=0.01), operator, NOBODY, lambda _: FakePrograms())
    thread = threading.Thread(target=agent.run)
    thread.start()
    wait_until(lambda: operator.statuses)
    agent.stop()
    thread.join(DEADLINE_S)
    assert operator.failing == operator.statuses[0].failing


def test_standalone_it_does_not_wait(tmp_path: Path) -> None:
    with pytest.raises(Unsupported):
        Agent(Config(bpf_dir=tmp_path), FakeControl(PLAN), NOBODY).run()


class Loading(FakePrograms):
    """Programs that wait a little instead of for a ring."""

    def wait(self, timeout_s: float) -> None:
        time.sleep(min(timeout_s, 0.01))


def test_an_agent_without_a_free_descriptor_is_refused_and_does_not_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> Programs:
        raise OSError(errno.EMFILE, "Too many open files", "/proc/kallsyms")

    monkeypatch.setattr(Programs, "open", full)
    with pytest.raises(Unsupported, match=r"cannot be loaded: .*Too many open files"):
        load_programs(Config())


def test_a_plan_that_cannot_be_followed_at_first_is_followed_when_that_has_passed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    follow, failures = loop_.Attachment.follow, iter([OSError(errno.EMFILE, "Too many open files")])

    def at_first_not(attachment: loop_.Attachment, *args: object, **options: object) -> None:
        if (error := next(failures, None)) is not None:
            raise error
        follow(attachment, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(loop_.Attachment, "follow", at_first_not)
    operator, programs = FakeControl(PLAN, patient=True), Loading()
    agent = Agent(Config(instance="i", tick_s=0.01), operator, NOBODY, lambda _: programs)  # type: ignore[arg-type, return-value]
    thread = threading.Thread(target=agent.run)
    thread.start()
    wait_until(lambda: operator.statuses and operator.statuses[-1].generation == 4, "the plan is in force")
    agent.stop()
    thread.join(DEADLINE_S)
    assert operator.statuses[-1].failing == {"plan": "OSError: [Errno 24] Too many open files"}


def test_a_suspended_plan_takes_everything_out_of_the_kernel_until_another_comes(tmp_path: Path) -> None:
    operator, loaded = FakeControl(msgspec.structs.replace(PLAN, suspend=True, targets=()), patient=True), []

    def load(_: Config) -> FakePrograms:
        loaded.append(Loading())
        return loaded[-1]

    agent = Agent(Config(bpf_dir=tmp_path, instance="i", tick_s=0.01), operator, NOBODY, load)  # type: ignore[arg-type]
    thread = threading.Thread(target=agent.run)
    thread.start()
    wait_until(lambda: any(s.generation == PLAN.generation for s in operator.statuses), "it says which plan it follows")
    assert (loaded, agent.health.measuring) == ([], False)

    operator.current = PLAN
    wait_until(lambda: agent.health.measuring and loaded[0].applied, "it measures")
    operator.current = msgspec.structs.replace(PLAN, suspend=True, targets=(), generation=5)
    wait_until(lambda: loaded[0].closed, "nothing is attached")
    wait_until(lambda: operator.statuses[-1].generation == 5, "it says so")
    operator.current = PLAN
    wait_until(lambda: len(loaded) == 2 and agent.health.measuring, "it measures again")
    agent.stop()
    thread.join(DEADLINE_S)
    assert not thread.is_alive()
    assert [one.closed for one in loaded] == [True, True]


def test_suspending_that_is_taken_back_while_listeners_are_closed_ends_no_agent(tmp_path: Path) -> None:
    operator, loaded = FakeControl(PLAN, patient=True), []
    taken_back = msgspec.structs.replace(PLAN, generation=6)

    class Waits:
        name = "spans"

        def take(self, turn: Turn) -> None:
            pass

        def close(self) -> None:  # for a collector, for example
            operator.current = taken_back

    def load(_: Config) -> FakePrograms:
        loaded.append(Loading())
        return loaded[-1]

    audience = Audience(lambda start: nullcontext((Waits(),)))
    agent = Agent(Config(bpf_dir=tmp_path, instance="i", tick_s=0.01), operator, audience, load)  # type: ignore[arg-type]
    thread = threading.Thread(target=agent.run)
    thread.start()
    wait_until(lambda: agent.health.measuring and loaded[0].applied, "it measures")
    operator.current = msgspec.structs.replace(PLAN, suspend=True, targets=(), generation=5)
    wait_until(lambda: len(loaded) == 2 and loaded[1].applied, "it measures again")
    assert thread.is_alive()
    agent.stop()
    thread.join(DEADLINE_S)


def test_in_safe_mode_it_counts_alone_says_so_and_ends_when_that_has_passed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    explained = msgspec.structs.replace(CART, evidence=("retransmits",))
    operator, why = FakeControl(msgspec.structs.replace(PLAN, targets=(explained,)), patient=True), "it crashed 2 times"
    attached: list[object] = []
    monkeypatch.setattr(loop_.EvidencePrograms, "beside", lambda *_: attached.append(_))
    config, programs = Config(bpf_dir=tmp_path, instance="i", tick_s=0.01), Loading()
    agent = Agent(config, operator, NOBODY, lambda _: programs, safe_mode=lambda: why)  # type: ignore[arg-type, return-value]
    thread = threading.Thread(target=agent.run)
    thread.start()
    wait_until(lambda: len(operator.statuses) > 3, "reports")
    assert {status.safe_mode for status in operator.statuses} == {"it crashed 2 times"}
    assert (bool(programs.applied), attached) == (True, [])
    why = ""
    thread.join(DEADLINE_S)
    assert not thread.is_alive()
    assert programs.closed
