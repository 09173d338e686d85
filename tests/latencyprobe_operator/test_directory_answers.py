"""What agents are answered."""

import asyncio
from collections.abc import Set
from typing import Any

import pytest
from msgspec.structs import replace

from latencyprobe.plan import Ask, Identity, IdentityAnswer, IdentityRequest, RemoteJoinAnswer, RemoteJoinMessage
from latencyprobe_operator.cluster import loops
from latencyprobe_operator.directory import answers as answers_
from latencyprobe_operator.directory.answers import Answers
from latencyprobe_operator.directory.limits import Refused
from latencyprobe_operator.directory.moved import MOVED_S, Moved
from latencyprobe_operator.directory.pacing import Pacing
from latencyprobe_operator.directory.streams import PlanStreams
from latencyprobe_operator.plan.deliveries import Change, Deliveries
from tests.latencyprobe_operator.directory_world import HALF


class World:
    """Answers to the agents of a pod `cart-1` on n1 and its caller `web-1` on n2; `reports`: how many they sent."""

    def __init__(self, make: Any) -> None:
        self.planned = make.planned(make.pod("cart-1"), make.pod("web-1", node="n2"))
        self.streams = PlanStreams(self.planned.planner, lambda _: {"n1"})
        self.switchboard = self.streams.switchboard
        self.reports = 0
        self.delivered: list[float] = []
        self.deliveries = Deliveries(self.delivered.append)
        self.answers = Answers(
            *(self.planned.planner, self.planned.agents, self.planned.state, self.streams, self.report),
            deliveries=self.deliveries,
        )

    def report(self) -> None:
        self.reports += 1

    def identities(self, node: str, request: IdentityRequest) -> IdentityAnswer:
        return asyncio.run(self.answers.identities(node, request))

    def remote_join(self, node: str, message: RemoteJoinMessage) -> RemoteJoinAnswer:
        return asyncio.run(self.answers.remote_join(node, message))


@pytest.fixture
def world(make: Any) -> World:
    return World(make)


def test_status_counts_for_the_callers_node(world: World, make: Any) -> None:
    plan = world.planned.planner.plan_of("n1")
    world.answers.status("n1", make.status(plan.generation))
    assert world.planned.agents.applied == {"n1": plan}
    assert world.reports == 1


def test_status_tells_how_long_the_agent_took_to_follow_a_change(world: World, make: Any) -> None:
    generation = world.planned.planner.plan_of("n1").generation
    world.deliveries.planned(Change(0.0, 0.0, 0.0, 1), {"n1": generation})
    world.answers.status("n1", make.status(generation - 1))
    assert not world.delivered
    world.answers.status("n1", make.status(generation))
    assert len(world.delivered) == 1


def test_identities_are_short_lived_until_the_callers_agent_has_applied_its_plan(world: World, make: Any) -> None:
    (web_address,) = next(p.addresses for p in world.planned.state.pods("shop") if p.name == "web-1")
    request = IdentityRequest((web_address, "192.0.2.9"))
    before = world.identities("n1", request)
    world.answers.status("n2", make.status(world.planned.planner.plan_of("n2").generation))
    after = world.identities("n1", request)
    assert (before.identities[0].measured, before.valid_s) == ((), answers_.UNSETTLED_VALID_S)
    assert (after.identities[0].measured, after.valid_s) == (("shop/checkout/cart",), answers_.VALID_S)
    assert after.identities[1].pod == ""
    assert after.generation == world.planned.planner.plan_of("n1").generation


def test_owners_that_a_node_may_not_learn_are_nobody_to_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    (web_address,) = next(p.addresses for p in world.planned.state.pods("shop") if p.name == "web-1")
    monkeypatch.setattr(world.answers.lookups, "may_learn", lambda node, *_: node == "n2")
    request = IdentityRequest((web_address,))
    assert (Identity(web_address),) == world.identities("n1", request).identities
    assert world.identities("n2", request).identities[0].pod == "web-1"


def test_addresses_without_an_owner_cost_nothing(world: World) -> None:
    world.identities("n1", IdentityRequest(tuple(f"192.0.2.{i}" for i in range(256))))
    assert not world.answers.lookups.counts


def test_who_has_gone_is_named_to_who_asks_too_late_with_what_was_measured_of_it(
    world: World, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent of a caller that has gone may follow a plan without it before anybody asks."""
    planned, plan_of = world.planned, world.planned.planner.plan_of
    world.answers.changing(planned.state.take_changes())
    world.answers.status("n2", make.status(plan_of("n2").generation))
    web = planned.state.pod(("shop", "web-1"))
    assert web
    request = IdentityRequest(web.addresses)
    asked = world.identities("n1", request)
    assert (asked.identities[0].pod, asked.past) == ("web-1", ()), "it is there"

    planned.state.drop("pods", ("shop", "web-1"))
    world.answers.changing(planned.state.take_changes())
    planned.agents.reported("n2", make.status(1), replace(plan_of("n2"), targets=()), 0.0)
    answer = world.identities("n1", request)

    assert answer.identities == (Identity(web.addresses[0]),)
    (past,) = answer.past
    assert past.identity == asked.identities[0]
    assert past.identity.measured == ("shop/checkout/cart",)
    assert past.began_ago_s > past.ended_ago_s >= 0.0
    assert world.answers.nodes_at(web.addresses[0]) == {"n2"}, "where its halves are asked for"
    planned.state.put("pods", replace(web, uid="another"))
    answer = world.identities("n1", request)
    assert (answer.identities[0].uid, answer.past[0].identity.uid) == ("another", web.uid)
    monkeypatch.setattr(world.answers.lookups, "may_learn", lambda *_: False)
    assert world.identities("n1", request).past == ()


def test_of_an_owner_that_a_node_may_not_learn_nothing_is_looked_at(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    (web_address,) = next(p.addresses for p in world.planned.state.pods("shop") if p.name == "web-1")
    monkeypatch.setattr(world.answers.lookups, "may_learn", lambda *_: False)
    monkeypatch.delattr(answers_, "identity")
    assert (Identity(web_address),) == world.identities("n1", IdentityRequest((web_address,))).identities


def test_others_run_while_many_addresses_are_looked_up_and_hear_whom_the_agent_knows(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loops, "SLICE_S", 0.0)
    world.streams.of["n1"] = asyncio.Event()
    addresses = [*(p.addresses[0] for p in world.planned.state.pods("shop")), "192.0.2.9"]

    async def scene() -> None:
        answering = asyncio.create_task(world.answers.identities("n1", IdentityRequest(tuple(addresses))))
        for _ in range(2):
            await asyncio.sleep(0)
        world.streams.forget(set(addresses))  # they change hands
        assert not answering.done()
        assert [one.address for one in (await answering).identities] == addresses
        assert world.streams._line("n1", None, world.planned.planner.plan_of("n1"), changes=True).forget

    asyncio.run(scene())


def test_who_asked_is_told_when_the_callers_agent_measures_something_else(world: World, make: Any) -> None:
    world.streams.of["n1"] = asyncio.Event()
    (web_address,) = next(p.addresses for p in world.planned.state.pods("shop") if p.name == "web-1")
    told: list[Set[str]] = []
    world.answers.moved = Moved(told.append)
    world.identities("n1", IdentityRequest((web_address,)))
    generation = world.planned.planner.plan_of("n2").generation
    world.answers.status("n2", make.status(generation))
    world.answers.status("n2", make.status(generation))
    assert told == [{web_address}]


def test_who_asked_is_told_with_anybodys_status_when_the_callers_agent_has_fallen_silent(
    world: World, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("latencyprobe_operator.plan.client_halves.LOOK_S", 0.0)
    agents, plan_of = world.planned.agents, world.planned.planner.plan_of
    (web_address,) = next(p.addresses for p in world.planned.state.pods("shop") if p.name == "web-1")
    for node in ("n1", "n2"):
        world.answers.status(node, make.status(plan_of(node).generation))
    told: list[Set[str]] = []
    world.answers.moved = Moved(told.append)
    agents.of["n2"] = replace(agents.of["n2"], reported_s=float("-inf"))
    for _ in range(2):
        world.answers.status("n1", make.status(plan_of("n1").generation))
    assert told == [{web_address}]
    answer = world.identities("n1", IdentityRequest((web_address,)))
    assert (answer.identities[0].measured, answer.valid_s) == ((), answers_.UNSETTLED_VALID_S)


def test_an_agent_that_moves_its_callers_all_the_time_is_told_of_once_in_some_seconds(world: World, make: Any) -> None:
    told: list[Set[str]] = []
    now_s = [0.0]
    world.answers.moved = Moved(told.append, lambda: now_s[0])
    (web_address,) = next(p.addresses for p in world.planned.state.pods("shop") if p.name == "web-1")
    plan = world.planned.planner.plan_of("n2")
    for flip in range(20):
        error = "it cannot measure any more" if flip % 2 else ""
        world.answers.status("n2", make.status(plan.generation, error=error))
    assert told == [{web_address}], "an error moves nothing"
    for number in range(1, 6):
        targets = () if number % 2 else plan.targets
        world.planned.planner.plans["n2"] = replace(plan, generation=plan.generation + number, targets=targets)
        world.answers.status("n2", make.status(plan.generation + number))
    assert told == [{web_address}]
    now_s[0] = MOVED_S
    world.answers.status("n1", make.status(1))
    assert told == [{web_address}] * 2, "with anybody's next status"


def test_while_thousands_come_back_answers_last_longer_and_nobody_is_told_of_each(world: World, make: Any) -> None:
    world.streams.pacing = Pacing(lambda: 4_000)
    world.streams.of["n1"] = asyncio.Event()
    (web_address,) = next(p.addresses for p in world.planned.state.pods("shop") if p.name == "web-1")
    told: list[Set[str]] = []
    world.answers.moved = Moved(told.append)
    answer = world.identities("n1", IdentityRequest((web_address,)))
    generation = world.planned.planner.plan_of("n2").generation
    world.answers.status("n2", make.status(generation))
    assert (answer.identities[0].measured, answer.valid_s) == ((), answers_.VALID_S)
    assert told == []
    world.planned.planner.plans["n2"] = replace(
        world.planned.planner.plan_of("n2"), generation=generation + 1, targets=()
    )
    world.answers.status("n2", make.status(generation + 1))
    assert told == [{web_address}]


def test_in_a_large_cluster_who_can_be_told_to_forget_asks_more_seldom(world: World, make: Any) -> None:
    for node in ("n1", "n2"):
        world.answers.status(node, make.status(world.planned.planner.plan_of(node).generation))
    world.streams.pacing = Pacing(lambda: 3_000)
    cart = next(p.addresses for p in world.planned.state.pods("shop") if p.name == "cart-1")
    assert world.identities("n1", IdentityRequest(cart)).valid_s == answers_.VALID_S, "it has no stream"
    world.streams.of["n1"] = asyncio.Event()
    assert world.identities("n1", IdentityRequest(cart)).valid_s == 300.0


@pytest.mark.parametrize(
    ("limit", "valid_s"),
    [
        ("", 300.0),
        ("latencyprobe_operator.directory.holders.ROOM", 50.0),
        ("latencyprobe_operator.directory.lookups.NEW_AT_ONCE", 50.0),
        ("latencyprobe_operator.plan.client_halves.NAMED", 50.0),
    ],
)
def test_what_may_change_untold_is_asked_for_sooner(
    world: World, make: Any, monkeypatch: pytest.MonkeyPatch, limit: str, valid_s: float
) -> None:
    monkeypatch.setattr("latencyprobe_operator.directory.lookups.OWN_AT_ONCE", 0)
    if limit:
        monkeypatch.setattr(limit, 0)
    for node in ("n1", "n2"):
        world.answers.status(node, make.status(world.planned.planner.plan_of(node).generation))
    world.streams.pacing = Pacing(lambda: 3_000)
    world.streams.of["n1"] = asyncio.Event()
    (web_address,) = next(p.addresses for p in world.planned.state.pods("shop") if p.name == "web-1")
    assert valid_s == world.identities("n1", IdentityRequest((web_address, "192.0.2.9"))).valid_s


def test_agent_without_a_stream_is_not_told_and_knows_it(world: World) -> None:
    assert not world.identities("n1", IdentityRequest(("10.0.0.1",))).told
    world.streams.of["n1"] = asyncio.Event()
    assert world.identities("n1", IdentityRequest(("10.0.0.1",))).told


def test_too_many_addresses_are_refused(world: World) -> None:
    with pytest.raises(Refused, match=r"\$\.addresses: 1001 of them: at most 1000") as refused:
        world.identities("n1", IdentityRequest(("10.0.0.1",) * 1001))
    assert refused.value.status == 400


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (RemoteJoinMessage((Ask(("a" * 32,) * 1001),)), "asks"),
        (RemoteJoinMessage((Ask(()),) * 1001), "asks"),
        (RemoteJoinMessage(halves=(HALF,) * 501), "halves"),
    ],
)
def test_too_many_keys_or_halves_are_refused(world: World, message: RemoteJoinMessage, field: str) -> None:
    with pytest.raises(Refused, match=rf"\$\.{field}") as refused:
        world.remote_join("n1", message)
    assert refused.value.status == 400


def test_half_goes_to_who_asked_for_it(world: World) -> None:
    for node in ("n1", "n2"):
        world.switchboard.connected(node)
        world.streams.of[node] = asyncio.Event()
    assert world.remote_join("n2", RemoteJoinMessage((Ask((HALF.key,), "10.0.0.1"),))).refused == {}
    assert world.remote_join("n1", RemoteJoinMessage(halves=(HALF,))).refused == {}
    assert world.switchboard.take("n2") == RemoteJoinMessage(halves=(HALF,))
