"""The loop hands every turn to every listener; one that raises is left out, and the others go on."""

import errno
import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

from latencyprobe.plan import NodePlan, PlannedObjective, SpanPolicy, Target, WaitPolicy
from latencyprobe.plan import Role as Perspective
from latencyprobe.variants import USER_STACKS
from latencyprobe_agent.config import Config
from latencyprobe_agent.guard import Guard
from latencyprobe_agent.kernel.evidence import EvidencePrograms
from latencyprobe_agent.kernel.programs import FakePrograms
from latencyprobe_agent.loop import attach, status
from latencyprobe_agent.loop.control import FakeControl
from latencyprobe_agent.loop.loop import Loop
from latencyprobe_agent.measure.counts import COUNTS
from latencyprobe_agent.measure.turn import Listener, Turn
from latencyprobe_agent.sli.listener import SliRows
from latencyprobe_agent.vocabulary.records import COUNTS_KEY, RETRANSMIT, Outcome, Role

POLICY = SpanPolicy(10**9, 0.0, 100)
ECHO = Target("d/p/echo", "d", "p", "", "echo", Perspective.SERVER, (5,), 0, POLICY, ports=(80,), clients=True)
FAST = PlannedObjective("d/p/fast", ECHO.id, "fast", Perspective.SERVER, 0, True, "h", "99", "28d", 1)
PLAN = NodePlan("host", 1, "", (ECHO,), (FAST,), pair_key=b"k" * 32, host=True)
PAIR = ({"role": Role.CLIENT}, {"role": Role.SERVER})
DEADLINE_S = 60


class Keeper:
    """Keeps the turns."""

    def __init__(self, name: str = "keeper") -> None:
        self.name = name
        self.turns: list[Turn] = []
        self.closed = 0

    def take(self, turn: Turn) -> None:
        self.turns.append(turn)

    def close(self) -> None:
        self.closed += 1


class Broken(Keeper):
    """Raises at every turn, and at its end."""

    def take(self, turn: Turn) -> None:
        super().take(turn)
        raise KeyError("nobody expected that")

    def close(self) -> None:
        super().close()
        raise OSError("nor that")


def times(n: int) -> Callable[[], bool]:
    counter = itertools.count()
    return lambda: next(counter) < n


def run(
    kernel: FakePrograms, listeners: Sequence[Listener], guard: Guard, control: FakeControl, turns: int = 3
) -> Loop:
    config = Config(tick_s=0.0, drain_interval_s=0.0)
    loop = Loop(kernel, config, control, sampling=True, guard=guard)  # type: ignore[arg-type]  # a fake
    with loop:
        loop.attachment.follow()
        loop.turn(listeners, config, times(turns), lambda: None)
    return loop


@pytest.fixture
def control() -> FakeControl:
    return FakeControl(PLAN)


def test_one_listener_that_raises_is_skipped_counted_and_named_while_the_others_get_every_turn(
    control: FakeControl, make_halves: Any
) -> None:
    kernel, guard = FakePrograms(make_halves(*PAIR).rec, make_halves(*PAIR).rec), Guard()
    first, broken, last = Keeper("first"), Broken("broken"), Keeper("last")
    loop = run(kernel, (first, broken, last), guard, control)
    assert len(first.turns) == len(last.turns) == len(broken.turns) > 3
    assert sum(len(turn.halves) for turn in last.turns) == 4
    assert guard.failures["broken"] == len(broken.turns) + 1
    assert set(guard.failures) == {"broken"}
    assert (first.closed, broken.closed, last.closed) == (1, 1, 1)
    assert kernel.closed
    reported = status.measuring(
        Config(), loop.last, {}, None, guard.problems, seen=status.Seen(), sampling=False, refused={}, loading=()
    )
    assert reported.failing == {"broken": "OSError: nor that"}
    counted = [turn.stats for turn in last.turns if turn.stats is not None]
    assert counted[-1].failures["broken"] > 0


@pytest.mark.parametrize(("why", "told"), [("", {}), ("CAP_SYS_PTRACE missing", {USER_STACKS: "unsupported"})])
def test_an_agent_that_may_not_look_into_processes_says_so_to_who_asks_for_their_stacks(
    monkeypatch: pytest.MonkeyPatch, why: str, told: dict[str, str]
) -> None:
    monkeypatch.setattr(attach, "cannot_look_into_processes", lambda _: why)
    asking = msgspec.structs.replace(ECHO, waits=WaitPolicy(10**6, stacks=True, user_stacks=True))
    control = FakeControl()
    with Loop(FakePrograms(), Config(), control, sampling=True, guard=Guard()) as loop:  # type: ignore[arg-type]
        for target, expected in ((asking, told), (ECHO, {})):
            control.current = msgspec.structs.replace(PLAN, targets=(target,))
            loop.attachment.follow()
            assert expected == loop.attachment.variants


@pytest.mark.parametrize(("per_second", "limited"), [(2, ()), (1, ("d/p",))])
def test_the_status_says_whom_the_node_left_too_few_spans(
    control: FakeControl, make_halves: Any, per_second: int, limited: tuple[str, ...]
) -> None:
    failed = ({"role": Role.SERVER, "outcome": Outcome.RESET, "request_seq": n} for n in range(2))
    config = Config(tick_s=0.0, drain_interval_s=0.0, spans_per_second=per_second)
    kernel = FakePrograms(make_halves(*failed).rec)
    with Loop(kernel, config, control, sampling=True, guard=Guard()) as loop:  # type: ignore[arg-type]  # a fake
        loop.attachment.follow()
        loop.turn((), config, times(2), lambda: None)
    reported = status.measuring(
        config, loop.last, {}, None, {}, seen=status.Seen(), sampling=True, refused={}, loading=()
    )
    assert (reported.spans_per_second, reported.spans_limited) == (per_second, limited)


def test_what_the_kernel_fails_at_when_idle_exchanges_are_to_end_costs_no_turn(
    control: FakeControl, make_halves: Any
) -> None:
    """As without memory for the iterator: each second, and at the end, when the last counts are still to be read."""

    class Short(FakePrograms):
        def flush(self) -> None:
            raise OSError(errno.ENOMEM, "cannot start an iterator")

    guard, keeper = Guard(), Keeper()
    run(Short(make_halves(*PAIR).rec), (keeper,), guard, control)
    assert sum(len(turn.halves) for turn in keeper.turns) == 2
    assert keeper.turns[-1].counts is not None
    assert guard.problems == {"flush": "OSError: [Errno 12] cannot start an iterator"}


def test_every_listener_gets_the_same_turn(control: FakeControl, make_halves: Any) -> None:
    one, other = Keeper("one"), Keeper("other")
    run(FakePrograms(make_halves(*PAIR).rec), (one, other), Guard(), control)
    assert all(a is b for a, b in zip(one.turns, other.turns, strict=True))


def test_without_a_plan_records_are_for_nobody(control: FakeControl, make_halves: Any) -> None:
    control.current = None
    keeper, kernel = Keeper(), FakePrograms(make_halves(*PAIR).rec)
    run(kernel, (keeper,), Guard(), control)
    assert keeper.turns == []
    assert kernel.batches == []


def test_what_was_counted_before_a_plan_changed_comes_in_a_turn_under_the_old_plan(
    control: FakeControl, make_halves: Any
) -> None:
    kernel = FakePrograms()
    key, counts = np.zeros((), COUNTS_KEY), np.zeros(1, COUNTS)
    key["target_set"], key["role"], counts["outcomes"][0, Outcome.OK] = 1, Role.SERVER, 5
    kernel.rows[key.tobytes()] = counts
    edited = NodePlan("host", 2, "", (ECHO,), (), pair_key=b"k" * 32, host=True)

    class Editor(Keeper):
        def take(self, turn: Turn) -> None:
            super().take(turn)
            control.current = edited

    editor = Editor()
    run(kernel, (editor,), Guard(), control)
    generations = [turn.in_force.plan.generation for turn in editor.turns]
    assert generations == sorted(generations)
    change = generations.index(2)
    before = editor.turns[change - 1]
    assert before.counts is not None
    assert before.counts.counts.values["outcomes"].sum() == 5


def test_a_target_that_stays_refused_is_logged_once_however_its_reason_changes(
    control: FakeControl, caplog: pytest.LogCaptureFixture
) -> None:
    """The reason names those that it shares sockets with: in the status it is always the latest."""
    plain, more, ninth = (
        msgspec.structs.replace(ECHO, id=f"d/p/{name}", thresholds_ns=thresholds)
        for name, thresholds in (("plain", (1, 2, 3, 4)), ("more", (5, 6, 7, 8)), ("ninth", tuple(range(11, 20))))
    )
    reasons = []
    with Loop(FakePrograms(), Config(), control, sampling=True, guard=Guard()) as loop:  # type: ignore[arg-type]
        for targets in ((plain, ninth), (plain, more, ninth), (plain,), (plain, ninth)):
            control.current = msgspec.structs.replace(PLAN, targets=targets, objectives=())
            loop.attachment.follow()
            assert loop.attachment.in_force is not None
            reasons.append(loop.attachment.in_force.rules.refused.get(ninth.id))
    assert len(set(reasons)) == 3
    logged = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert [f"target {ninth.id} is not measured: {reason}" for reason in (reasons[0], reasons[3])] == logged


def test_what_is_in_no_count_comes_with_the_counts_of_a_turn(control: FakeControl) -> None:
    kernel, keeper = FakePrograms(), Keeper()
    kernel.unaccounted_for = {1: 3}
    run(kernel, (keeper,), Guard(), control)
    assert [{1: 3}] == [dict(turn.counts.unaccounted) for turn in keeper.turns if turn.counts][-1:]


def test_a_control_that_raises_does_not_end_measuring(make_halves: Any) -> None:
    class Failing(FakeControl):
        calls = 0

        def plan(self) -> NodePlan | None:
            self.calls += 1
            if self.calls > 1:
                raise RuntimeError("a defect")
            return super().plan()

    keeper, guard = Keeper(), Guard()
    run(FakePrograms(make_halves(*PAIR).rec), (keeper,), guard, Failing(PLAN))
    assert guard.failures["plan"] > 0
    assert sum(len(turn.halves) for turn in keeper.turns) == 2


def test_turns_go_on_while_programs_are_loaded(monkeypatch: pytest.MonkeyPatch, make_halves: Any) -> None:
    """The verifier takes a second for some: the ring would be full."""
    drained, waited = threading.Event(), []

    def load(*_: object) -> FakePrograms:
        waited.append(drained.wait(DEADLINE_S))
        return FakePrograms(np.zeros(0, RETRANSMIT))

    class Draining(Keeper):
        def take(self, turn: Turn) -> None:
            super().take(turn)
            if len(turn.halves):
                drained.set()

    monkeypatch.setattr(EvidencePrograms, "beside", load)
    explained = msgspec.structs.replace(ECHO, evidence=("retransmits",))
    control = FakeControl(msgspec.structs.replace(PLAN, targets=(explained,)))
    kernel = FakePrograms(make_halves().rec, make_halves(*PAIR).rec)
    run(kernel, (Draining(),), Guard(), control)
    assert waited == [True]


def test_records_that_wait_at_a_tick_and_the_counts_are_one_turn(control: FakeControl, make_halves: Any) -> None:
    keeper = Keeper()
    run(FakePrograms(make_halves(*PAIR).rec), (keeper,), Guard(), control, turns=1)
    first = keeper.turns[0]
    assert len(first.halves) == 2
    assert first.counts is not None


def test_of_the_turns_that_empty_a_full_ring_at_a_tick_the_last_one_has_the_counts(
    control: FakeControl, make_halves: Any
) -> None:
    keeper, two = Keeper(), make_halves(*PAIR).rec
    run(FakePrograms(np.tile(two, 2048), two), (keeper,), Guard(), control, turns=1)
    found = [(len(turn.halves), turn.counts is not None) for turn in keeper.turns[:2]]
    assert found == [(4096, False), (2, True)]


def test_rows_of_a_turn_reach_the_control(control: FakeControl, make_halves: Any) -> None:
    rows = SliRows(control.take, 5.0, None)
    run(FakePrograms(make_halves(*PAIR).rec), (rows,), Guard(), control)
    assert {row.objective for row in control.rows} == {"fast"}
    assert control.statuses == [], "the agent reports, not the loop"
