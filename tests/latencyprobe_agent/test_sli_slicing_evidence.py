"""SLI rows say how many of their exchanges evidence explains, and of the slowest what it says of them."""

from dataclasses import replace
from functools import reduce

import numpy as np
import pytest

from latencyprobe.plan import Role as Perspective
from latencyprobe.sli import EvidenceCount, EvidenceSummary, merged
from latencyprobe_agent.measure.evidence import Joined
from latencyprobe_agent.measure.evidence_counts import Gained
from latencyprobe_agent.measure.evidence_join import EvidenceJoin
from latencyprobe_agent.measure.pairing import LocalJoin
from latencyprobe_agent.measure.recent import RecentHalves
from latencyprobe_agent.signals import waits
from latencyprobe_agent.signals.evidence import Evidence, Explains
from latencyprobe_agent.signals.join_keys import SENT_BYTES
from latencyprobe_agent.signals.retransmits import EXPLAINS
from latencyprobe_agent.signals.table import HANDSHAKES
from latencyprobe_agent.vocabulary.records import COUNTS_KEY, EVIDENCE_COUNTS, FLOW_HEADER, WAIT, Role, WaitKind
from tests.latencyprobe_agent.slicer import MS, NOW, make_slicer, objective, only, taken
from tests.support.exchanges import SECOND, at_level

RESENT = Explains(
    "lost", lambda _: {}, lambda _: [], describe=lambda _, new_ns: [("rto", 1, new_ns)], waits=EXPLAINS.waits
)
CONNECTED = Explains("connected", lambda _: {}, lambda _: [], describe=lambda *_: [("ok", 2, 7 * MS)])


def slow_and_quick(make_halves):
    sent = {"role": Role.SERVER, "response_bytes": 100}
    slow = {"sock_cookie": 1, "response_seq": 100, "stages": (0, 0, 0, 10 * MS)}
    quick = {"sock_cookie": 2, "request_seq": 5, "response_seq": 100, "stages": (0, 0, 0, 1 * MS)}
    return make_halves({**sent, **slow}, {**sent, **quick})


def explained(halves):
    """Two records about the first half, one about the second."""
    join = EvidenceJoin(RecentHalves(), SENT_BYTES, RESENT.waits)
    join.recent.keep(halves)
    rows = np.zeros(3, np.dtype([("flow", FLOW_HEADER)]))
    rows["flow"]["sock_cookie"] = (1, 1, 2)
    rows["flow"]["boot_ns"] = np.array([3, 5, 1]) * MS + 1_000_000_000
    key = SENT_BYTES.of(rows["flow"], seq=100, end_seq=150)
    return join.join(Evidence(rows, key, np.ones(3, np.bool_)), 2 * 10**9)


def test_evidence_counts_each_exchange_once_and_says_which_were_bad(make_halves):
    slicer = make_slicer(objective("fast"), objective("slow", threshold_index=1))
    joined = explained(slow_and_quick(make_halves))

    slicer.add_evidence("retransmits", RESENT, joined, NOW)

    fast, lenient = sorted(taken(slicer), key=lambda row: row.objective)
    assert fast.evidence == {"retransmits": EvidenceCount(exchanges=2, bad=1, wait_ns=6 * MS)}
    assert lenient.evidence == {"retransmits": EvidenceCount(exchanges=2, bad=0, wait_ns=6 * MS)}
    assert merged(fast, fast).evidence["retransmits"] == EvidenceCount(4, 2, 12 * MS)


def test_evidence_on_a_sampled_exchange_counts_for_what_it_stands_for(make_halves):
    slicer, halves = make_slicer(objective()), slow_and_quick(make_halves)
    halves.rec["flags"][1] = at_level(3)

    slicer.add_evidence("retransmits", RESENT, explained(halves), NOW)

    assert only(slicer).evidence == {"retransmits": EvidenceCount(exchanges=9, bad=1, wait_ns=13 * MS)}


def test_records_of_a_signal_that_its_ring_refused_stand_beside_what_it_explains():
    keys, values = np.zeros(3, COUNTS_KEY), np.zeros(3, EVIDENCE_COUNTS)
    keys["target_set"], keys["role"], keys["owner"] = (1, 1, 9), Role.SERVER, (5, 6, 5)
    values["lost_records"] = 4, 3, 100
    slicer = make_slicer(objective("fast"))
    slicer.add_evidence_lost(Gained(HANDSHAKES, keys, values), NOW)
    assert only(slicer).evidence == {"handshakes": EvidenceCount(lost=7)}


@pytest.mark.parametrize("told_before", [False, True])
def test_the_slowest_exchanges_name_their_evidence_also_when_it_comes_after_they_were_told(make_halves, told_before):
    slicer = make_slicer(objective())
    half = slow_and_quick(make_halves)
    slicer.add_records(half, LocalJoin().join(half), NOW)
    early = taken(slicer) if told_before else ()

    slicer.add_evidence("retransmits", RESENT, explained(half), NOW)
    slicer.add_evidence("handshakes", CONNECTED, explained(half), NOW)

    row = reduce(merged, (*early, *taken(slicer)))
    slow, quick = row.slowest
    assert slow.evidence == (
        EvidenceSummary("handshakes", "ok", 4, 14 * MS),
        EvidenceSummary("retransmits", "rto", 2, 5 * MS),
    )
    assert quick.evidence == (
        EvidenceSummary("handshakes", "ok", 2, 7 * MS),
        EvidenceSummary("retransmits", "rto", 1, 1 * MS),
    )
    assert ({"send": 10 * MS}, "10.0.0.2") == (slow.stages, slow.peer)
    assert ["retransmits"] == list(row.evidence), "a handshake is no loss: how many had one says nothing"


def test_who_waited_longer_than_the_threshold_for_what_came_before_is_counted(make_halves):
    late = replace(CONNECTED, before=lambda records: np.array([20, 30], np.int64)[: len(records)] * MS)
    slicer, halves = make_slicer(objective()), slow_and_quick(make_halves)
    halves.rec["flags"][1] = at_level(3)
    both = explained(halves)  # about the quick one, and two about the slow one
    opening = Joined(both.evidence.take(np.array([0, 2])), both.half[[0, 2]], *3 * (np.zeros(2, np.int64),))

    slicer.add_evidence("handshakes", late, opening, NOW)
    assert only(slicer).evidence == {"handshakes": EvidenceCount(exchanges=9, bad=1, wait_ns=190 * MS)}

    slicer.add_evidence("handshakes", replace(late, before=lambda records: np.zeros(len(records), int)), opening, NOW)
    assert taken(slicer) == ()


def test_a_callers_slow_exchange_names_what_its_server_lost(make_halves):
    slicer = make_slicer(objective(perspective=Perspective.CLIENT))
    client = make_halves({"role": Role.CLIENT, "stages": (0, 0, 10 * MS, 0), "sock_cookie": 3})
    slicer.add_records(client, LocalJoin().join(client), NOW)
    join = EvidenceJoin(RecentHalves(), SENT_BYTES, RESENT.waits)
    join.recent.keep(client)
    join.share(client.join_key, np.array([9 * MS]), np.ones(1, np.int64))

    slicer.add_evidence("retransmits", RESENT, join.shared(), NOW)

    assert [(EvidenceSummary("retransmits", "server", 0, 9 * MS),)] == [slow.evidence for slow in only(slicer).slowest]


class Accounts:
    """The join of the signal `waits`, and what it finds, in a slicer."""

    def __init__(self, *objectives):
        self.slicer = make_slicer(*objectives)
        self.join = EvidenceJoin(RecentHalves(), waits.KEY, lasted=waits.EXPLAINS.lasted)

    def kept(self, halves):
        self.join.recent.keep(halves)

    def came(self, *cookies, kind=WaitKind.SERVED):
        """A record of each of these requests: 6 ms in a call, 1 ms ready."""
        records = np.zeros(len(cookies), WAIT)
        records["kind"], records["seq"], records["flow"]["sock_cookie"] = kind, 100, cookies
        records["flow"]["boot_ns"] = SECOND + 7 * MS
        records["start_ns"], records["ready_ns"], records["blocked_ns"] = SECOND, MS, 6 * MS
        records["call_nr"][:, 0], records["call_ns"][:, 0], records["call_count"][:, 0] = NO_CALL, 6 * MS, 1
        found = self.join.join(waits.columns(records), 2 * SECOND)
        if found is not None:
            self.slicer.add_evidence("waits", waits.EXPLAINS, found, NOW)


NO_CALL = -4
ONCE = {"no call": 6 * MS, "run_queue": MS}


def test_what_process_went_to_is_told_of_the_servers_exchanges_over_the_threshold(make_halves):
    accounts = Accounts(objective("fast"), objective("slow", threshold_index=1))
    accounts.kept(slow_and_quick(make_halves))
    accounts.came(1, 2)
    fast, lenient = sorted(taken(accounts.slicer), key=lambda row: row.objective)
    assert (ONCE, {}) == (fast.cause_ns, lenient.cause_ns)
    assert 2 == fast.evidence["waits"].exchanges


def test_an_account_that_comes_late_counts_once_and_for_what_its_exchange_stands_for(make_halves):
    accounts, halves = Accounts(objective()), slow_and_quick(make_halves)
    halves.rec["flags"][0] = at_level(3)
    accounts.kept(halves.take(np.array([1])))
    accounts.came(1)
    assert () == taken(accounts.slicer), "its half has not ended"
    accounts.kept(halves.take(np.array([0])))
    accounts.came()
    accounts.came(1, kind=WaitKind.ONE)
    accounts.came()
    assert {cause: 8 * ns for cause, ns in ONCE.items()} == only(accounts.slicer).cause_ns


def test_a_callers_objective_says_nothing_of_what_its_servers_did(make_halves):
    accounts = Accounts(objective(perspective=Perspective.CLIENT))
    accounts.kept(slow_and_quick(make_halves))
    accounts.came(1, 2)
    assert () == taken(accounts.slicer)
