"""What the agent reports of its targets."""

import numpy as np

from latencyprobe.plan import NodePlan, SpanPolicy, Target
from latencyprobe.plan import Role as Perspective
from latencyprobe_agent.identity.resources import ProcessResources
from latencyprobe_agent.loop.status import Seen
from latencyprobe_agent.measure.counts import COUNTS, Counts, Snapshot
from latencyprobe_agent.measure.rules import Rules, TargetSet
from latencyprobe_agent.measure.turn import InForce, empty
from latencyprobe_agent.vocabulary.now import Now
from latencyprobe_agent.vocabulary.records import COUNTS_KEY, ExchangeClass, Role

POLICY = SpanPolicy(1, 1.0, 100)
CART = Target("shop/p/cart", "shop", "p", "uid", "cart", Perspective.SERVER, (), 0, POLICY, ports=(80,))
WEB = Target("shop/p/web", "shop", "p", "uid", "web", Perspective.SERVER, (), 0, POLICY, ports=(81,))
PLAN = NodePlan("n1", 4, "", (CART, WEB), (), host=True)


def test_a_target_s_status_adds_up_its_sets_and_roles() -> None:
    keys, totals = np.zeros(3, COUNTS_KEY), np.zeros(3, COUNTS)
    keys["target_set"] = 1, 1, 2
    keys["role"] = Role.SERVER, Role.CLIENT, Role.SERVER
    totals["classes"][:, ExchangeClass.PINGPONG] = 10, 20, 40
    totals["classes"][2, ExchangeClass.PIPELINED] = 3
    sets = {1: TargetSet((CART.id,), (), 0, POLICY, "shop/p"), 2: TargetSet((CART.id, WEB.id), (), 0, POLICY, "shop/p")}
    counts = Counts(keys, totals)
    rules = Rules(sets=sets, refused={WEB.id: "there is no room"})
    turn = empty(Now(0, 0), InForce(PLAN, rules, ProcessResources("n1")))
    cart, web = Seen().targets(turn._replace(counts=Snapshot(counts, counts, keys[:0], {})))
    assert (cart.id, cart.seen, cart.classes) == (CART.id, 73, {"pingpong": 70, "pipelined": 3})
    assert (cart.refused, web.refused) == ("", "there is no room")
    assert (web.seen, web.classes) == (43, {"pingpong": 40, "pipelined": 3})


def test_what_a_number_counted_for_another_target_is_nothing_of_its_new_one() -> None:
    keys, totals = np.zeros(1, COUNTS_KEY), np.zeros(1, COUNTS)
    keys["target_set"], totals["classes"][0, ExchangeClass.PINGPONG] = 1, 1000
    sets = {1: TargetSet((CART.id,), (), 0, POLICY, "shop/p"), 2: TargetSet((CART.id,), (5,), 0, POLICY, "shop/p")}
    before, after = Rules(sets=sets), Rules(sets={**sets, 1: TargetSet((WEB.id,), (), 0, POLICY, "shop/p")})
    seen, told = Seen(), []
    for rules, pipelined in [(before, 0), (after, 0), (after, 5)]:
        totals["classes"][0, ExchangeClass.PIPELINED] = pipelined
        counts = Counts(keys, totals.copy())
        turn = empty(Now(0, 0), InForce(PLAN, rules, ProcessResources("n1")))
        told.append(seen.targets(turn._replace(counts=Snapshot(counts, counts, keys[:0], {}))))
    assert [(1000, 0), (0, 0), (0, 5)] == [(cart.seen, web.seen) for cart, web in told]
    assert [{"pingpong": 1000}, {}, {}] == [cart.classes for cart, _ in told]
    assert [{}, {}, {"pipelined": 5}] == [web.classes for _, web in told]
