"""SLI rows: exact from counts, refined by pairs, cut by minute, never counted twice."""

import numpy as np
import pytest
from msgspec.structs import replace

from latencyprobe.plan import Role as Perspective
from latencyprobe.plan import TargetPod
from latencyprobe.sli import merged
from latencyprobe_agent.measure import histogram
from latencyprobe_agent.measure.pairing import LocalJoin
from latencyprobe_agent.measure.rules import compile_rules
from latencyprobe_agent.sli.slicing import MINUTE_NS, Slicer
from latencyprobe_agent.vocabulary import ids
from latencyprobe_agent.vocabulary.now import Now
from latencyprobe_agent.vocabulary.records import Excluded, Outcome, Role
from tests.latencyprobe_agent.slicer import (
    MINUTE,
    MS,
    NO_LOSS,
    NOW,
    PAIR_KEY,
    UNIX_NS,
    counts_of,
    make_slicer,
    objective,
    only,
    taken,
)
from tests.support.plans import plan_of, target


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
            "sampled_out_records": 6,
        }),
        {1: 5, 2: 7}, Now(2 * MS, UNIX_NS),
    )  # fmt: skip
    row = only(slicer)

    assert {place - 672: 2} == row.histogram
    assert ({"process": 60 * MS}, {"process": 2}) == (row.stage_ns, row.dominant)
    c = row.coverage
    assert (9, 3, 4, 5, 1, 2) == (c.seen, c.ambiguous, c.excluded, c.lost, c.records_lost, c.measured_ms)
    assert 6 == c.sampled_out
    assert {"pipelined": 2, "streaming": 1, "setup": 1, "oneway": 3} == row.exclusions


def test_losses_are_differences_too():
    slicer = make_slicer(objective())

    lost = []
    for ours in (2, 2, 3):
        slicer.add_counts(counts_of(), {1: ours}, Now(MS, UNIX_NS))
        lost.append(only(slicer).coverage.lost)

    assert [2, 0, 1] == lost


def test_what_is_lost_of_one_target_set_leaves_the_objectives_of_others_complete():
    web, cart = target("web", pods=(TargetPod("a", (80,)),)), target("cart", pods=(TargetPod("a", (81,)),))
    objectives = tuple(replace(objective(one.name), target=one.id) for one in (web, cart))
    plan = replace(plan_of(web, cart), objectives=objectives)
    rules = compile_rules(plan, {"a": [1]})
    of_cart = next(number for number, one in rules.sets.items() if cart.id in one.targets)
    slicer = Slicer()
    slicer.apply(plan, rules)

    slicer.add_counts(counts_of(), {number: 4 if number == of_cart else 0 for number in rules.sets}, Now(MS, UNIX_NS))

    assert {"web": 0, "cart": 4} == {row.objective: row.coverage.lost for row in taken(slicer)}


def test_a_target_that_is_refused_is_not_measured_and_what_it_had_lost_is_told():
    """Its sockets have no rule any more; the number of its set stays for counts that come late."""
    mine = replace(target("mine", pods=(TargetPod("a", (80,)),)), thresholds_ns=(5,))
    others = replace(target("first", pods=(TargetPod("a", (80,)),)), thresholds_ns=tuple(range(10, 18)))
    before = replace(plan_of(mine), objectives=(replace(objective("fast"), target=mine.id),))
    after = replace(plan_of(others, mine), objectives=before.objectives)
    in_force = compile_rules(before, {"a": [1]})
    refused = compile_rules(after, {"a": [1]}, in_force)
    assert mine.id in refused.refused
    slicer = Slicer()
    slicer.apply(before, in_force)
    slicer.add_counts(counts_of(), {1: 0}, Now(60 * MS, UNIX_NS))
    slicer.apply(after, refused)
    slicer.add_counts(counts_of(), {1: 3}, Now(100 * MS, UNIX_NS + 40 * MS))

    coverage = only(slicer).coverage

    assert (60, 3) == (coverage.measured_ms, coverage.lost)


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
