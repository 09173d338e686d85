"""SLI rows: exact from counts, refined by pairs, cut by minute, never counted twice."""

import ipaddress
from functools import reduce

import numpy as np
import pytest

from latencyprobe.bounds import bounded
from latencyprobe.plan import NodePlan, PlannedObjective, SpanPolicy, Target, TargetPod
from latencyprobe.plan import Role as Perspective
from latencyprobe.sli import EvidenceCount, EvidenceSummary, merged
from latencyprobe_agent.measure import histogram
from latencyprobe_agent.measure.counts import COUNTS, Counts
from latencyprobe_agent.measure.evidence_counts import Gained
from latencyprobe_agent.measure.evidence_join import EvidenceJoin
from latencyprobe_agent.measure.pairing import LocalJoin
from latencyprobe_agent.measure.recent import RecentHalves
from latencyprobe_agent.measure.rules import compile_rules
from latencyprobe_agent.signals.evidence import Evidence, Explains
from latencyprobe_agent.signals.join_keys import SENT_BYTES
from latencyprobe_agent.signals.retransmits import EXPLAINS
from latencyprobe_agent.signals.table import HANDSHAKES
from latencyprobe_agent.sli.slicing import MINUTE_NS, Slicer
from latencyprobe_agent.vocabulary import ids
from latencyprobe_agent.vocabulary.now import Now
from latencyprobe_agent.vocabulary.records import COUNTS_KEY, EVIDENCE_COUNTS, FLOW_HEADER, Excluded, Outcome, Role

MS = 1_000_000
FAST_NS, SLOW_NS = 5 * MS, 25 * MS
NO_LOSS = {"ring_full": 0, "counts_full": 0, "counts": 0, "storage": 0, "recursion": 0}
MINUTE = 1_700_000_040  # a multiple of 60
UNIX_NS = MINUTE * 10**9 + 10 * 10**9
NOW = Now(UNIX_NS, UNIX_NS)


RESENT = Explains("lost", lambda _: {}, lambda _: [], describe=lambda _: ("rto", 1, 0), waits=EXPLAINS.waits)
CONNECTED = Explains("connected", lambda _: {}, lambda _: [], describe=lambda _: ("ok", 2, 7 * MS))


def objective(name="fast", threshold_index=0, perspective=Perspective.SERVER, errors_count_as_bad=True):
    return PlannedObjective(
        id=f"shop/cart/{name}", target="shop/cart/web", name=name, perspective=perspective, goal="99", window="28d",
        threshold_index=threshold_index, errors_count_as_bad=errors_count_as_bad, hash=f"hash of {name}", min_events=1,
    )  # fmt: skip


PAIR_KEY = b"key"


def make_slicer(*objectives):
    target = Target(
        id="shop/cart/web", namespace="shop", probe="cart", probe_uid="uid", name="web", role=Perspective.SERVER,
        thresholds_ns=(FAST_NS, SLOW_NS), setup_turns=0, spans=SpanPolicy(1, 1.0, 1), pods=(TargetPod("a", (80,)),),
    )  # fmt: skip
    plan = NodePlan(node="n", generation=1, digest="", targets=(target,), objectives=objectives, pair_key=PAIR_KEY)
    slicer = Slicer(boot_ns=0)
    slicer.apply(plan, compile_rules(plan, {"a": [1]}))
    return slicer


def counts_of(*rows, role=Role.SERVER):
    """Totals by owner; a row gives single fields, or elements of them by (field, index)."""
    keys = np.array([(owner, 1, role) for owner in range(len(rows))], COUNTS_KEY)
    totals = np.zeros(len(rows), COUNTS)
    for row_number, fields in enumerate(rows):
        for at, value in fields.items():
            name, *index = at if isinstance(at, tuple) else (at,)
            totals[name][row_number, *index] = value
    return Counts(keys, totals)


def taken(slicer):
    rows = slicer.take(lambda packed: str(ipaddress.ip_address(packed[-4:])))
    assert rows == tuple(map(bounded, rows)), "what an agent sends is within the bounds"
    return rows


def only(slicer):
    (row,) = taken(slicer)
    return row


def test_good_and_bad_come_from_the_counts_of_all_owners_at_the_objectives_threshold():
    slicer = make_slicer(objective(threshold_index=1))
    first = {("outcomes", Outcome.OK): 8, ("outcomes", Outcome.RESET): 2, ("within", 1): 7, ("failed_within", 1): 1}
    second = {("outcomes", Outcome.OK): 1, ("within", 1): 1, ("within", 0): 1}

    slicer.add_counts(counts_of(first, second), NO_LOSS, Now(MS, UNIX_NS))
    row = only(slicer)

    assert (7, 4) == (row.good, row.bad)
    assert ("shop", "cart", "uid", "fast", "hash of fast", MINUTE) == (
        row.namespace, row.probe, row.probe_uid, row.objective, row.hash, row.minute
    )  # fmt: skip


def test_failed_exchanges_within_the_threshold_are_good_if_errors_do_not_count():
    slicer = make_slicer(objective(errors_count_as_bad=False))

    slicer.add_counts(
        counts_of({("outcomes", Outcome.RESET): 2, ("within", 0): 1, ("failed_within", 0): 1}),
        NO_LOSS, Now(MS, UNIX_NS),
    )  # fmt: skip
    row = only(slicer)

    assert (1, 1) == (row.good, row.bad)


def test_rows_are_differences_and_add_up_to_the_kernels_totals():
    slicer, good = make_slicer(objective()), []

    for total in (3, 10, 10, 12):
        slicer.add_counts(counts_of({("outcomes", 0): total, ("within", 0): total}), NO_LOSS, Now(MS, UNIX_NS))
        good += [row.good for row in taken(slicer)]

    assert [3, 7, 0, 2] == good


def test_histogram_stages_and_coverage_are_carried_over():
    slicer = make_slicer(objective())
    place = int(histogram.positions(np.array([30 * MS]))[0])

    slicer.add_counts(
        counts_of({
            ("outcomes", 0): 2, ("histogram", place): 2, ("over_stage_ns", 0, 2): 60 * MS, ("over_dominant", 0, 2): 2,
            ("excluded", Excluded.PIPELINED): 2, ("excluded", Excluded.STREAMING): 1,
            ("excluded", Excluded.SETUP): 1, ("excluded", Excluded.ONEWAY): 3, "lost_records": 1,
        }),
        {**NO_LOSS, "counts": 5, "ring_full": 7}, Now(2 * MS, UNIX_NS),
    )  # fmt: skip
    row = only(slicer)

    assert {place - 672: 2} == row.histogram
    assert ({"process": 60 * MS}, {"process": 2}) == (row.stage_ns, row.dominant)
    c = row.coverage
    assert (9, 3, 4, 5, 1, 2) == (c.seen, c.ambiguous, c.excluded, c.lost, c.records_lost, c.measured_ms)
    assert {"pipelined": 2, "streaming": 1, "setup": 1, "oneway": 3} == row.exclusions


def test_losses_are_differences_too():
    slicer = make_slicer(objective())

    lost = []
    for storage in (2, 2, 3):
        slicer.add_counts(counts_of(), {**NO_LOSS, "storage": storage}, Now(MS, UNIX_NS))
        lost.append(only(slicer).coverage.lost)

    assert [2, 0, 1] == lost


@pytest.mark.parametrize("step_s", [3600, -3600, 5, -5])
def test_a_step_of_the_wall_clock_changes_the_minute_and_neither_counts_nor_time(step_s):
    slicer = make_slicer(objective())
    slicer.add_counts(counts_of({("outcomes", 0): 3, ("within", 0): 3}), NO_LOSS, Now(MS, UNIX_NS))
    stepped_ns = UNIX_NS + step_s * 10**9

    slicer.add_counts(
        counts_of({("outcomes", 0): 7, ("within", 0): 7}), NO_LOSS, Now(1001 * MS, stepped_ns + 1000 * MS)
    )
    slicer.add_counts(
        counts_of({("outcomes", 0): 8, ("within", 0): 8}), NO_LOSS, Now(2001 * MS, stepped_ns + 2000 * MS)
    )
    rows = taken(slicer)

    assert (8, 2001) == (sum(row.good for row in rows), sum(row.coverage.measured_ms for row in rows))
    assert {MINUTE, stepped_ns // MINUTE_NS * 60} <= {row.minute for row in rows}


def test_measured_time_is_split_at_minutes_and_nothing_of_it_gets_lost():
    slicer = make_slicer(objective())

    slicer.add_counts(counts_of({("outcomes", 0): 1}), NO_LOSS, Now(2 * MINUTE_NS, UNIX_NS))
    rows = taken(slicer)

    assert [(MINUTE - 120, 50_000), (MINUTE - 60, 60_000), (MINUTE, 10_000)] == [
        (row.minute, row.coverage.measured_ms) for row in rows
    ]
    assert [0, 0, 1] == [row.bad for row in rows]


def test_the_slowest_exchanges_have_their_stages_peer_and_time(make_halves):
    slicer = make_slicer(objective())
    half = make_halves(
        *(
            {"role": Role.SERVER, "start_ns": 100, "stages": (0, 0, ms * MS, 1), "request_seq": ms}
            for ms in range(1, 9)
        ),
        {"role": Role.SERVER, "stages": (0, 0, 900 * MS, 0), "excluded": Excluded.SETUP},
        {"role": Role.SERVER, "stages": (0, 0, 900 * MS, 0), "target_set": 2},
        {"role": Role.CLIENT, "stages": (0, 0, 900 * MS, 0)},
    )

    slicer.add_records(half, LocalJoin().join(half), Now(UNIX_NS - 1000, UNIX_NS))
    row = only(slicer)

    assert [8, 7, 6, 5, 4] == [slow.duration_ns // MS for slow in row.slowest]
    slow = row.slowest[0]
    assert ({"process": 8 * MS, "send": 1}, 1100, "10.0.0.2", "") == (
        slow.stages, slow.start_unix_ns, slow.peer, slow.error
    )  # fmt: skip
    assert ids.to_hex(half.trace_ids(PAIR_KEY))[7] == slow.trace_id


def test_peers_of_bad_exchanges_are_counted_by_name(make_halves):
    slicer = make_slicer(objective())
    half = make_halves(
        {"role": Role.SERVER, "stages": (0, 0, 6 * MS, 0), "peer": "10.0.0.5"},
        {"role": Role.SERVER, "stages": (0, 0, 7 * MS, 0), "peer": "10.0.0.6"},
        {"role": Role.SERVER, "stages": (0, 0, 1, 0), "peer": "10.0.0.6", "outcome": Outcome.RESET},
        {"role": Role.SERVER, "stages": (0, 0, 1, 0), "peer": "10.0.0.7"},
    )
    slicer.add_records(half, LocalJoin().join(half), NOW)

    (row,) = slicer.take(lambda packed: "shop/front" if packed[-1] in (5, 6) else "other")

    assert {"shop/front": 3} == row.peers
    assert {"", "reset"} == {slow.error for slow in row.slowest}


def joined_pair(make_halves):
    return make_halves(
        {"role": Role.CLIENT, "stages": (1 * MS, 28 * MS, 0, 1 * MS)},
        {"role": Role.SERVER, "stages": (0, 2 * MS, 20 * MS, 1 * MS)},
    )


CLIENT_COUNTS = {
    ("outcomes", 0): 2, ("over_dominant", 1, 1): 2,
    ("over_stage_ns", 1, 0): 1 * MS, ("over_stage_ns", 1, 1): 78 * MS, ("over_stage_ns", 1, 3): 1 * MS,
}  # fmt: skip


def test_joined_pairs_put_their_own_stages_in_the_place_of_wait(make_halves):
    slicer = make_slicer(objective(threshold_index=1, perspective=Perspective.CLIENT))
    half = joined_pair(make_halves)

    slicer.add_records(half, LocalJoin().join(half), NOW)
    slicer.add_counts(counts_of(CLIENT_COUNTS, role=Role.CLIENT), NO_LOSS, Now(MS, UNIX_NS))
    row = only(slicer)

    pair = {"network": 6, "server_read_delay": 2, "server_process": 20, "server_send": 1, "client_read_delay": 1}
    assert {"wait": 50 * MS, **{name: ms * MS for name, ms in pair.items()}} == row.stage_ns
    assert {"wait": 1, "server_process": 1} == row.dominant
    assert 1 == row.coverage.joined
    assert ({name: ms * MS for name, ms in pair.items()}, True) == (row.slowest[0].stages, row.slowest[0].joined)


def test_a_recalled_pair_corrects_what_was_counted_and_told_before(make_halves):
    slicer = make_slicer(objective(threshold_index=1, perspective=Perspective.CLIENT))
    client, server = (joined_pair(make_halves).take(np.array([row])) for row in (0, 1))
    join = LocalJoin()
    slicer.add_records(client, join.join(client), NOW)
    slicer.add_counts(counts_of(CLIENT_COUNTS, role=Role.CLIENT), NO_LOSS, Now(MS, UNIX_NS))
    early = only(slicer)

    slicer.add_remote(join.join(server), NOW)
    late = only(slicer)

    assert ({"wait": 2}, 0, 1) == (early.dominant, early.coverage.joined, sum(early.peers.values()))
    assert (0, 0, {}) == (late.bad, sum(late.stage_ns.values()), late.peers)
    both = merged(early, late)
    pair = {"network": 6, "server_read_delay": 2, "server_process": 20, "server_send": 1, "client_read_delay": 1}
    assert {"wait": 50 * MS, **{name: ms * MS for name, ms in pair.items()}} == {
        stage: ns for stage, ns in both.stage_ns.items() if ns
    }
    assert {"wait": 1, "server_process": 1} == both.dominant
    assert 1 == both.coverage.joined
    assert [(True, "10.0.0.2")] == [(slow.joined, slow.peer) for slow in both.slowest]


def test_a_joined_server_half_keeps_its_own_stages(make_halves):
    slicer = make_slicer(objective())
    half = joined_pair(make_halves)

    slicer.add_records(half, LocalJoin().join(half), NOW)
    row = only(slicer)

    assert ({"read_delay": 2 * MS, "process": 20 * MS, "send": 1 * MS}, True) == (
        row.slowest[0].stages, row.slowest[0].joined
    )  # fmt: skip
    assert 1 == row.coverage.joined


@pytest.mark.parametrize("batches", [1, 2, 5])
def test_how_records_are_cut_into_batches_changes_no_row(make_halves, batches):
    slicer = make_slicer(objective())
    half = make_halves(
        *(
            {"role": Role.SERVER, "stages": (0, 0, i * MS, 0), "request_seq": i, "peer": f"10.0.0.{i}"}
            for i in range(10)
        )
    )
    join = LocalJoin()

    for rows in np.array_split(np.arange(10), batches):
        some = half.take(rows)
        slicer.add_records(some, join.join(some), NOW)
    row = only(slicer)

    assert [9, 8, 7, 6, 5] == [slow.duration_ns // MS for slow in row.slowest]
    assert {"10.0.0.9", "10.0.0.8", "10.0.0.7", "10.0.0.6"} == set(row.peers)


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


def test_a_callers_slow_exchange_names_what_its_server_lost(make_halves):
    slicer = make_slicer(objective(perspective=Perspective.CLIENT))
    client = make_halves({"role": Role.CLIENT, "stages": (0, 0, 10 * MS, 0), "sock_cookie": 3})
    slicer.add_records(client, LocalJoin().join(client), NOW)
    join = EvidenceJoin(RecentHalves(), SENT_BYTES, RESENT.waits)
    join.recent.keep(client)
    join.share(client.join_key, np.array([9 * MS]))

    slicer.add_evidence("retransmits", RESENT, join.shared(), NOW)

    assert [(EvidenceSummary("retransmits", "server", 0, 9 * MS),)] == [slow.evidence for slow in only(slicer).slowest]
