"""sli/listener.py: turns become rows, of the time in which there was a plan."""

from collections.abc import Iterable

import numpy as np
from msgspec.structs import replace

from latencyprobe.plan import Identity, TargetPod
from latencyprobe.sli import SliRow
from latencyprobe_agent.directory.peers import FakePeers
from latencyprobe_agent.identity.resources import FakeResources
from latencyprobe_agent.measure.counts import NO_COUNTS, Snapshot
from latencyprobe_agent.measure.halves import halves
from latencyprobe_agent.measure.rules import compile_rules
from latencyprobe_agent.measure.turn import InForce, Turn, empty
from latencyprobe_agent.sli.listener import SliRows
from latencyprobe_agent.vocabulary.now import Now
from latencyprobe_agent.vocabulary.records import COUNTS_KEY, Outcome, Role
from tests.latencyprobe_agent.slicer import NO_LOSS, UNIX_NS, objective
from tests.support.exchanges import exchanges
from tests.support.plans import plan_of, target

S = 10**9
PLAN = replace(plan_of(target(pods=(TargetPod("a", (80,)),))), objectives=(objective(),))
IN_FORCE = InForce(PLAN, compile_rules(PLAN, {"a": [1]}), FakeResources())


NO_HALVES = halves(exchanges(0, Role.SERVER))


def counted(boot_s: int) -> Turn:
    """A turn with counts in which nothing happened, so long after boot."""
    counts = Snapshot(NO_COUNTS, NO_COUNTS, np.zeros(0, COUNTS_KEY), {}, NO_LOSS)
    return empty(Now(boot_s * S, UNIX_NS + boot_s * S), IN_FORCE)._replace(counts=counts)


def test_time_is_measured_from_the_first_plan_on() -> None:
    """However long the agent has waited for it."""
    delivered: list[SliRow] = []
    rows = SliRows(delivered.extend, 5.0, None)
    for boot_s in (600, 601, 607):
        rows.take(counted(boot_s))
    rows.close()
    assert 7_000 == sum(row.coverage.measured_ms for row in delivered)


def test_figures_by_peer_come_with_the_last_counts_of_their_minute_under_the_names_of_workloads() -> None:
    web = Identity("10.0.0.2", "shop", "web-1", workload="web")
    delivered: list[SliRow] = []
    rows = SliRows(delivered.extend, 5.0, FakePeers(web))
    some = halves(np.concatenate([exchanges(4, Role.SERVER), exchanges(2, Role.SERVER, peer="10.0.0.9")]))
    rows.take(counted(600)._replace(halves=some))
    for boot_s in (605, 650, 655):
        rows.take(counted(boot_s))
    told = [(row.minute, {peer: one.events for peer, one in row.by_peer.items()}) for row in delivered if row.by_peer]
    minute = (UNIX_NS // S + 600) // 60 * 60
    assert told == [(minute, {"shop/web": 4, "10.0.0.9": 2})]


def test_where_nobody_can_name_an_address_there_are_no_figures_by_peer() -> None:
    """On a host, where nobody asks for them: they would cost each record."""
    delivered: list[SliRow] = []
    rows = SliRows(delivered.extend, 5.0, None)
    rows.take(counted(600)._replace(halves=halves(exchanges(4, Role.SERVER))))
    rows.take(counted(660))
    rows.close()
    assert delivered
    assert not any(row.by_peer for row in delivered)


def test_bad_events_name_a_peer_while_it_is_asked_for_again() -> None:
    """Its answer held for seconds, and rows are handed over every five."""
    web, delivered = Identity("10.0.0.2", "shop", "web-1", workload="web"), list[SliRow]()
    late = halves(exchanges(4, Role.SERVER, outcome=Outcome.TIMED_OUT))

    class Late(FakePeers):
        def resolve(self, addresses: Iterable[str], late_s: float = 0.0) -> dict[str, Identity]:
            return super().resolve(addresses) if late_s >= 15.0 else {}

    rows = SliRows(delivered.extend, 5.0, Late(web))
    rows.take(counted(600)._replace(halves=late))
    rows.close()
    assert [row.peers for row in delivered if row.peers] == [{"shop/web": 4}]


def test_an_address_that_changed_hands_is_not_taken_for_who_had_it() -> None:
    """He may be of another namespace, and has never talked to these pods."""
    peers, delivered = FakePeers(Identity("10.0.0.2", "bank", "ledger-1", workload="ledger")), list[SliRow]()
    rows = SliRows(delivered.extend, 5.0, peers)
    for boot_s in (600, 660):
        rows.take(counted(boot_s)._replace(halves=halves(exchanges(4, Role.SERVER))))
    peers.identities.clear()
    rows.take(counted(720))
    rows.close()
    assert [[*row.by_peer] for row in delivered if row.by_peer] == [["bank/ledger"], ["10.0.0.2"]]


def test_bad_events_name_a_peer_that_has_gone_and_nobody_where_another_has_its_address() -> None:
    web, delivered = Identity("10.0.0.2", "shop", "web-1", uid="1", workload="web"), list[SliRow]()
    late = halves(exchanges(4, Role.SERVER, outcome=Outcome.TIMED_OUT))
    peers = FakePeers(web)
    rows = SliRows(delivered.extend, 5.0, peers)
    rows.take(counted(600)._replace(halves=late))
    peers.leave("10.0.0.2", 590.0, 602.0)
    rows.take(counted(605))
    peers.identities["10.0.0.2"] = Identity("10.0.0.2", "bank", "ledger-1", uid="2", workload="ledger")
    for boot_s in range(610, 645, 5):
        rows.take(counted(boot_s)._replace(halves=late if boot_s in {610, 640} else NO_HALVES))
    assert [row.peers for row in delivered if row.peers] == [{"shop/web": 4}, {"10.0.0.2": 4}, {"bank/ledger": 4}]
