"""A turn is complete when it is handed on: sampled, joined, counted; what fails in it is missing, and counted."""

import gc
import time
import weakref
from typing import Any

import msgspec
import numpy as np
import pytest

from latencyprobe.plan import Container, NodePlan, Pod, SpanPolicy, Target
from latencyprobe.plan import Role as Perspective
from latencyprobe_agent.guard import Guard
from latencyprobe_agent.identity.cgroups import Cgroup
from latencyprobe_agent.identity.resources import PodResources, ProcessResources
from latencyprobe_agent.kernel.clock import Clock
from latencyprobe_agent.kernel.programs import IN_RING, FakePrograms
from latencyprobe_agent.loop.background import FakeBackground
from latencyprobe_agent.loop.canary import Canary
from latencyprobe_agent.loop.counting import Counting
from latencyprobe_agent.loop.evidence import EvidenceSignals
from latencyprobe_agent.loop.http2 import Http2
from latencyprobe_agent.loop.pressure import PressureReader
from latencyprobe_agent.loop.turn import Parts, Turns
from latencyprobe_agent.measure.canary import CANARY_SET
from latencyprobe_agent.measure.rules import Rules, TargetSet
from latencyprobe_agent.measure.sampling import Reason, Sampler
from latencyprobe_agent.measure.turn import InForce
from latencyprobe_agent.vocabulary.now import Now
from latencyprobe_agent.vocabulary.records import Role

POLICY = SpanPolicy(10**9, 0.0, 100)
ECHO = Target("d/p/echo", "d", "p", "", "echo", Perspective.SERVER, (), 0, POLICY, ports=(80,), clients=True)
IN_FORCE = InForce(
    NodePlan("host", 1, "", (ECHO,), (), pair_key=b"k" * 32, host=True),
    Rules(sets={1: TargetSet((ECHO.id,), (), 0, POLICY, "d/p")}),
    ProcessResources("host"),
)
SLOW_CLIENT = {"role": Role.CLIENT, "stages": (0, 2 * 10**9, 0, 0)}
SERVER = {"role": Role.SERVER, "stages": (0, 0, 10**8, 0)}


def turns(
    kernel: FakePrograms, guard: Guard | None = None, *, sampling: bool = True, canary: Canary | None = None
) -> Turns:
    def attach(signal: object) -> Any:
        raise AssertionError("no target asks for evidence, or for HTTP/2")

    def attach_http2() -> Any:
        return attach(None)

    parts = Parts(
        programs=kernel,  # type: ignore[arg-type]  # a fake
        clock=Clock(),
        counting=Counting(kernel, 15.0, Now(0, 0)),  # type: ignore[arg-type]  # a fake
        http2=Http2(attach_http2, FakeBackground()),
        evidence=EvidenceSignals(attach, FakeBackground()),
        sampler=Sampler(1000) if sampling else None,
        joiner=None,
        pressure=PressureReader(),
        canary=canary,
    )
    return Turns(parts, guard or Guard())


def test_halves_are_sampled_before_they_are_joined_and_take_their_other_half_along(make_halves: Any) -> None:
    kernel = FakePrograms(make_halves(SLOW_CLIENT, SERVER).rec)
    turn, emptied = turns(kernel).make(IN_FORCE)
    assert emptied
    assert turn.halves.sampled.tolist() == [Reason.SLOW + 1, 0]
    assert turn.pairs.client_at.tolist() == [0]
    assert turn.sampled.reason.tolist() == [Reason.SLOW, Reason.OTHER_HALF]


def test_a_half_of_the_turn_before_comes_along_when_its_other_half_is_slow(make_halves: Any) -> None:
    kernel = FakePrograms(make_halves(SERVER).rec, make_halves(SLOW_CLIENT).rec)
    made = turns(kernel)
    first, _ = made.make(IN_FORCE)
    second, _ = made.make(IN_FORCE)
    assert (len(first.sampled), len(first.pairs)) == (0, 0)
    assert second.sampled.halves.rec["role"].tolist() == [Role.CLIENT, Role.SERVER]


def test_records_of_what_a_container_nests_are_the_container_s(make_halves: Any) -> None:
    pod = Pod("uid-1", "d", "kind-0", (), (Container("kind", "ab" * 32),), {})
    cgroups = {owner: Cgroup("uid-1", "ab" * 32) for owner in (7, 71, 72)}
    plan = msgspec.structs.replace(IN_FORCE.plan, host=False, pods=(pod,))
    in_force = IN_FORCE._replace(plan=plan, resources=PodResources(plan, cgroups))
    kernel = FakePrograms(make_halves(*({**SERVER, "cgroup_id": owner} for owner in (71, 9, 7, 72))).rec)
    turn, _ = turns(kernel).make(in_force)
    assert turn.halves.rec["cgroup_id"].tolist() == [7, 9, 7, 7]


def test_a_turn_that_filled_its_room_says_that_there_is_more(make_halves: Any) -> None:
    full = np.repeat(make_halves(SERVER).rec, 4096)
    made = turns(FakePrograms(full, full[:3]))
    assert [made.make(IN_FORCE)[1] for _ in range(2)] == [False, True]


@pytest.mark.parametrize(("filled", "gives_way"), [(0.5, True), (0.51, False)])
def test_a_turn_gives_way_to_the_load_unless_the_ring_fills_up(
    monkeypatch: pytest.MonkeyPatch, make_halves: Any, filled: float, gives_way: bool
) -> None:
    kernel, slept = FakePrograms(make_halves(*(SERVER,) * 2).rec), list[float]()
    monkeypatch.setattr(kernel, "waiting", lambda: int(filled * kernel.ring_bytes / IN_RING))
    monkeypatch.setattr(time, "sleep", slept.append)
    turns(kernel).make(IN_FORCE)
    assert bool(slept) == gives_way


def test_the_canary_is_in_no_turn(make_halves: Any) -> None:
    kernel = FakePrograms(make_halves(SERVER, {**SERVER, "target_set": CANARY_SET}, SLOW_CLIENT).rec)
    turn, _ = turns(kernel, canary=Canary(kernel)).make(IN_FORCE)  # type: ignore[arg-type]  # a fake
    assert turn.halves.rec["target_set"].tolist() == [1, 1]


def test_the_memory_of_a_turn_is_free_as_soon_as_nobody_has_it(make_halves: Any) -> None:
    made = turns(FakePrograms(make_halves(SLOW_CLIENT, SERVER).rec))
    gc.disable()  # it would find, seconds later, what refers to itself
    try:
        turn, _ = made.make(IN_FORCE)
        pairs = turn.pairs
        assert [len(part) for part in (pairs.events, pairs.client, pairs.server, pairs.dominant)] == [1, 1, 1, 1]
        left = [weakref.ref(part) for part in (turn.halves, turn.halves.rec, pairs)]
        del turn, pairs
        assert [part() for part in left] == [None, None, None]
    finally:
        gc.enable()


def test_counts_and_figures_come_once_a_second_and_one_reading_of_the_clock_dates_all(make_halves: Any) -> None:
    kernel = FakePrograms(make_halves(SERVER, SLOW_CLIENT).rec)
    made = turns(kernel)
    turn, _ = made.make(IN_FORCE)
    assert (turn.counts, turn.stats) == (None, None)
    turn, _ = made.make(IN_FORCE, plan_age_s=3.0)
    assert turn.stats is not None
    assert (turn.stats.records_read, turn.stats.plan_age_s) == (2, 3.0)
    assert turn.counts is not None
    assert turn.counts.lost["ring_full"] == 0


def test_counts_come_without_what_held_up_containers_where_that_cannot_be_read(
    make_halves: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    guard = Guard()
    made = turns(FakePrograms(make_halves(SERVER).rec), guard)
    monkeypatch.setattr(PressureReader, "read", fail)
    turn, _ = made.make(IN_FORCE, plan_age_s=0.0)
    assert turn.counts is not None
    assert (turn.pressure, guard.failures) == ({}, {"pressure": 1})


def test_counts_come_without_the_agents_figures_where_the_kernel_does_not_tell_what_a_signal_lost(
    make_halves: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise OSError(9, "cannot read the statistics of a program")

    guard = Guard()
    made = turns(FakePrograms(make_halves(SERVER).rec), guard)
    monkeypatch.setattr(EvidenceSignals, "lost", property(fail))
    turn, _ = made.make(IN_FORCE, plan_age_s=0.0)
    assert turn.counts is not None
    assert (turn.stats, guard.failures) == (None, {"stats": 1})


@pytest.mark.parametrize("part", ["halves", "other_halves"])
def test_records_that_cannot_be_measured_are_counted_as_lost_and_the_next_turn_goes_on(
    make_halves: Any, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    def fail(*_: object) -> None:
        raise IndexError("a defect")

    guard = Guard()
    made = turns(FakePrograms(make_halves(SLOW_CLIENT, SERVER).rec, make_halves(SERVER).rec), guard)
    with monkeypatch.context() as patched:
        patched.setattr(f"latencyprobe_agent.loop.turn.{part}", fail)
        turn, _ = made.make(IN_FORCE, plan_age_s=0.0)
    assert len(turn.halves) == 0
    assert guard.failures == {"measure": 1}
    assert turn.counts is not None
    assert turn.counts.lost["unmeasured"] == 2
    turn, _ = made.make(IN_FORCE)
    assert len(turn.halves) == 1


def test_what_a_slow_half_waited_for_becomes_a_span_and_both_are_linked_at_the_end(make_halves: Any) -> None:
    thread = {"reader_tgid": 5, "writer_tgid": 5, "reader_tid": 7, "writer_tid": 7}
    slow = {"role": Role.SERVER, "stages": (0, 0, 2 * 10**9, 0), **thread}
    call = {"role": Role.CLIENT, "start_ns": 15 * 10**8, "stages": (0, 10**8, 0, 0), "request_seq": 9, **thread}
    made = turns(FakePrograms(make_halves(slow, call).rec))
    turn, _ = made.make(IN_FORCE, plan_age_s=0.0, last=True)
    assert turn.calls.called is not None
    assert turn.sampled.reason.tolist() == [Reason.SLOW, Reason.CALL]
    assert turn.calls.links["linked"].tolist() == [True]
    assert turn.stats is not None
    assert turn.stats.calls["joined"] == 1


def test_without_spans_what_halves_waited_for_is_told_all_the_same(make_halves: Any) -> None:
    thread = {"reader_tgid": 5, "writer_tgid": 5, "reader_tid": 7, "writer_tid": 7}
    call = {"role": Role.CLIENT, "start_ns": 101 * 10**7, "stages": (0, 10**7, 0, 0), "request_seq": 9, **thread}
    made = turns(FakePrograms(make_halves({**SERVER, **thread}, call).rec), sampling=False)
    turn, _ = made.make(IN_FORCE, last=True)
    assert turn.calls.called is not None
    assert (len(turn.sampled), len(turn.calls.links)) == (0, 0)
