"""Bytes that waited to be sent: each half tells of its own end, a pair of the other's; nothing is counted twice."""

import numpy as np

from latencyprobe_agent.measure import unsent
from latencyprobe_agent.measure.halves import NO_HALVES, halves
from latencyprobe_agent.measure.pairing import LocalJoin
from latencyprobe_agent.signals.unsent import EXPLAINS
from latencyprobe_agent.vocabulary.records import Excluded, HeldBound, Role, UnsentReason
from tests.support.exchanges import at_level, exchanges

MS = 1_000_000
NAGLE = {"unsent_reason": UnsentReason.NAGLE, "unsent_bytes": 500, "held_ns": 41 * MS}
SERVED = (0, 0, 5 * MS, 0)
WAITED = (0, 50 * MS, 0, 0)  # of which 45 ms are the network's


def both(client=None, server=None):
    """The halves of one exchange."""
    return halves(
        np.concatenate(
            [
                exchanges(1, Role.CLIENT, stages=WAITED, **(client or {})),
                exchanges(1, Role.SERVER, stages=SERVED, **(server or {})),
            ]
        )
    )


def told(batch):
    """(Role of the half, what is said of it, for how long, whether it is the first) of each row."""
    found = batch.joined
    rows = zip(found.half["role"], found.evidence.rec, found.new_ns.tolist(), found.first.tolist(), strict=True)
    return [(Role(role), EXPLAINS.describe(record, ns)[0][0], ns, first) for role, record, ns, first in rows]


def test_without_anything_unsent_nothing_is_told():
    some = both()
    pairs = LocalJoin().join(some)
    assert (None, []) == (unsent.of_halves(some, pairs), unsent.of_pairs(pairs))
    nothing = LocalJoin().join(NO_HALVES)
    assert (None, []) == (unsent.of_halves(NO_HALVES, nothing), unsent.of_pairs(nothing))


def test_what_a_server_held_is_told_of_both_halves_and_counted_once():
    some = both(server=NAGLE)
    pairs = LocalJoin().join(some)
    mine = unsent.of_halves(some, pairs)
    assert [(Role.SERVER, "server nagle", 41 * MS, True)] == told(mine)
    (others,) = unsent.of_pairs(pairs)
    assert [(Role.CLIENT, "server nagle", 41 * MS, True)] == told(others)
    assert (1, 0) == (len(mine.records), len(others.records)), "metrics count records"
    assert mine.joined.half["join_key"] == others.joined.half["join_key"]


def test_what_a_client_held_is_told_of_its_server_too():
    some = both(client=NAGLE)
    (others,) = unsent.of_pairs(LocalJoin().join(some))
    assert [(Role.SERVER, "client nagle", 41 * MS, True)] == told(others)


def test_of_two_ends_that_held_bytes_each_half_is_counted_once_and_its_time_is_that_of_both():
    some = both(client={**NAGLE, "held_ns": 3 * MS}, server=NAGLE)
    pairs = LocalJoin().join(some)
    rows = told(unsent.of_halves(some, pairs)) + [row for batch in unsent.of_pairs(pairs) for row in told(batch)]
    for role in (Role.CLIENT, Role.SERVER):
        of_half = [row for row in rows if row[0] is role]
        assert (1, 44 * MS) == (sum(first for *_, first in of_half), sum(ns for *_, ns, _ in of_half))


def test_a_pair_bounds_what_its_ends_held_by_its_network():
    bound = {**NAGLE, "held_ns": 10_000 * MS, "held_bound": HeldBound.AT_MOST}
    some = both(server=bound)
    pairs = LocalJoin().join(some)
    assert [(Role.SERVER, "server nagle at most", 45 * MS, True)] == told(unsent.of_halves(some, pairs))
    assert [(Role.CLIENT, "server nagle at most", 45 * MS, True)] == told(*unsent.of_pairs(pairs))


def test_halves_of_two_batches_meet():
    some, join = both(server=NAGLE), LocalJoin()
    for at in (1, 0):  # the server's first
        batch = some.take(np.array([at]))
        pairs = join.join(batch)
        mine = unsent.of_halves(batch, pairs)
        assert (mine is not None) == (at == 1)
    assert [(Role.CLIENT, "server nagle", 41 * MS, True)] == told(*unsent.of_pairs(pairs))


def test_what_is_no_event_is_not_told_and_a_sampled_one_stands_for_others():
    excluded = both(server={**NAGLE, "excluded": Excluded.SETUP})
    assert unsent.of_halves(excluded, LocalJoin().join(NO_HALVES)) is None
    some = both(server={**NAGLE, "flags": at_level(3)})
    pairs = LocalJoin().join(some)
    assert [8] == unsent.of_halves(some, pairs).records.rec["adjusted_count"].tolist()
    (others,) = unsent.of_pairs(pairs)
    assert [8] == others.joined.half["adjusted_count"].tolist()
