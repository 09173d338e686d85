"""The loop of the statuses: which are written, and when."""

import asyncio
from typing import Any

import pytest

from latencyprobe_operator.cluster.calls import FakeCluster
from latencyprobe_operator.cluster.loops import Loops, Trigger, in_slices
from latencyprobe_operator.cluster.writes import Writes
from latencyprobe_operator.plan.agents import STARTING_S
from latencyprobe_operator.status import statuses as statuses_
from latencyprobe_operator.status.placement import Placement
from latencyprobe_operator.status.registry import Registry
from latencyprobe_operator.status.statuses import SETTLING_S, Statuses, Told
from latencyprobe_operator.status.writer import StatusWriter

KEY = ("shop", "checkout")
NOW = "2026-01-01T00:00:00Z"


class World:
    """The statuses of one LatencyProbe, that was `written` before."""

    def __init__(self, make: Any, **written: Any) -> None:
        self.planned = make.planned(make.pod("cart-1"), clients={"scope": "None"}).labelled()
        self.registry, self.cluster, self.make = Registry(lambda: None), FakeCluster(), make
        self.registry.put(make.document(clients={"scope": "None"}) | {"status": written})
        self.figures: list[dict[str, Any]] = []
        self.loops = Loops()
        self.return_s = 0.0

    def statuses(self, changed: Trigger) -> Statuses:
        writer = StatusWriter(self.cluster, Writes(), self.planned.state)
        return Statuses(
            self.registry,
            self.planned.planner,
            self.planned.agents,
            writer,
            told=Told(lambda _: self.figures, lambda: Placement(self.planned.state, "lp-agents", ())),
            changed=changed,
            loops=self.loops,
            return_s=lambda: self.return_s,
        )

    def desired(self, *times_s: float) -> list[dict[str, Any] | None]:
        """The status at each of these times, None where it is left as it is."""

        async def play() -> list[dict[str, Any] | None]:
            statuses = self.statuses(Trigger())
            return [(await in_slices(statuses.desired(now_s, NOW))).get(KEY) for now_s in times_s]

        return asyncio.run(play())


def reasons(status: dict[str, Any] | None) -> list[str]:
    return [c["reason"] for c in status["conditions"]] if status else []


def test_status_has_the_figures_of_the_last_evaluation(make: Any) -> None:
    world = World(make)
    world.figures = [{"objective": "fast", "state": "Met", "sli": "99.9"}]
    (status,) = world.desired(0)
    assert status is not None
    assert status["objectives"] == [{"name": "fast", "state": "Met", "sli": "99.9"}]


def test_status_from_before_our_start_stays_until_agents_had_the_time_to_report(make: Any) -> None:
    early, late = World(make, nodes="1/1").desired(0, SETTLING_S)
    assert early is None
    assert reasons(late) == ["Accepted", *["AgentStarting"] * 3]
    (first,) = World(make).desired(0)
    assert reasons(first) == reasons(late), "one that was never written is at once"


def test_status_from_before_our_start_stays_longer_where_agents_take_longer_to_come_back(make: Any) -> None:
    world = World(make, nodes="1/1")
    world.return_s = 30.0
    early, late = world.desired(0, SETTLING_S)
    assert early is late is None
    assert reasons(world.desired(0, SETTLING_S + 30.0)[1])


def test_agent_that_fell_silent_changes_the_status_though_nothing_happened(make: Any) -> None:
    world = World(make)
    world.planned.report("n1", 0)
    ready, silent = world.desired(1, STARTING_S)
    assert (reasons(ready)[1], reasons(silent)[1]) == ("AgentsReady", "AgentMissing")


def test_latencyprobe_that_is_not_planned_yet_keeps_its_status(make: Any) -> None:
    world = World(make)
    document = make.document(suspend=True)
    world.registry.put(document | {"metadata": document["metadata"] | {"generation": 2}})
    assert world.desired(0) == [None]


def test_wrong_spec_has_a_status_without_a_plan(make: Any) -> None:
    world = World(make)
    document = make.document(targets=[])
    world.registry.put(document | {"metadata": document["metadata"] | {"generation": 2}})
    (status,) = world.desired(0)
    assert set(reasons(status)) == {"InvalidSpec"}


@pytest.mark.parametrize("changed", [True, False])
def test_statuses_are_written_after_a_change_and_from_time_to_time(
    make: Any, monkeypatch: pytest.MonkeyPatch, changed: bool
) -> None:
    monkeypatch.setattr(statuses_, "PAUSE_S", 0.001)
    monkeypatch.setattr(statuses_, "UNCHANGED_S", 60 if changed else 0.001)
    world = World(make)

    async def play() -> None:
        trigger = Trigger()
        task = asyncio.create_task(world.loops.run(world.statuses(trigger)))
        if changed:
            trigger.set()
        await make.until(lambda: world.cluster.calls)
        task.cancel()

    asyncio.run(play())
    assert world.cluster.calls[0][:3] == ("write_status", *KEY)


def test_status_says_who_has_stopped_all_measuring_and_how_to_take_it_back(make: Any) -> None:
    world = World(make)
    world.registry.suspended_by = "a label: kubectl label namespace latencyprobe latencyprobe.dev/suspend-"
    world.planned.plan(*world.registry.probes.values())
    (status,) = world.desired(0)
    assert reasons(status) == ["Accepted", "Suspended", "Suspended", "Suspended"]
    assert status is not None
    assert all("latencyprobe.dev/suspend-" in c["message"] for c in status["conditions"][1:])


def test_a_latencyprobe_whose_status_cannot_be_made_costs_itself_alone_and_is_logged_once(
    make: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world, made = World(make), statuses_.status

    def failing(entry: Any, *args: Any, **kw: Any) -> dict[str, Any]:
        if entry.uid == "uid-shop-broken":
            raise ValueError("nobody foresaw it")
        return made(entry, *args, **kw)

    monkeypatch.setattr(statuses_, "status", failing)
    world.registry.put(make.document("broken", clients={"scope": "None"}))
    world.planned.plan(*world.registry.probes.values())
    assert all(reasons(status) for status in world.desired(0, 1, 2))
    assert dict(world.loops.failures) == {("statuses", "ValueError"): 3}
    assert [record.message for record in caplog.records] == ["statuses: ValueError('nobody foresaw it')"]


def test_a_status_that_somebody_wrote_by_hand_costs_others_nothing(make: Any) -> None:
    world, time = World(make), "2026-01-01t00:00:00z"  # taken by the API server, and by nobody else
    said = (("ProbesReady", "True"), ("Measuring", "False"))
    conditions = [
        {"type": kind, "status": is_so, "lastTransitionTime": time, "reason": "x", "message": ""}
        for kind, is_so in said
    ]
    document = make.document("by-hand", clients={"scope": "None"}) | {"status": {"conditions": conditions}}
    world.registry.put(document)
    world.planned.plan(*world.registry.probes.values())
    world.planned.report("n1", 0)
    asyncio.run(world.statuses(Trigger()).turn())
    assert {call[2] for call in world.cluster.calls if call[0] == "write_status"} == {"by-hand", KEY[1]}
    assert not world.loops.failures
