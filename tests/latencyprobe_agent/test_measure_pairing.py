"""Local joining: every exchange whose halves both came is one pair, whatever the order; nothing ambiguous is one."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from latencyprobe_agent.measure.halves import halves
from latencyprobe_agent.measure.pairing import LocalJoin
from latencyprobe_agent.measure.stages import PAIR_STAGES
from latencyprobe_agent.vocabulary.records import EXCHANGE, Excluded, Role
from tests.support.exchanges import exchanges


def batch_of(numbers_and_roles):
    """Halves of the exchanges with these numbers; the number is also the client's `send` or the server's `process`."""
    rows = [np.zeros(0, EXCHANGE)]
    for number, role in numbers_and_roles:
        stages = (number, 0, 0, 0) if role is Role.CLIENT else (0, 0, number, 0)
        rows.append(exchanges(1, role, stages=stages, request_offset=number))
    return halves(np.concatenate(rows))


def joined(pairs):
    return sorted(zip(pairs.client.duration_ns.tolist(), pairs.server.duration_ns.tolist(), strict=True))


@given(st.data(), st.sets(st.integers(0, 1000), max_size=40), st.sets(st.integers(0, 1000), max_size=40))
def test_any_order_and_any_batches_join_the_same_pairs(data, clients, servers):
    sides = [(n, Role.CLIENT) for n in clients] + [(n, Role.SERVER) for n in servers]
    shuffled = data.draw(st.permutations(sides))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sides)), max_size=4)))
    join, found = LocalJoin(), []

    for start, end in zip([0, *cuts], [*cuts, len(sides)], strict=True):
        pairs = join.join(batch_of(shuffled[start:end]))
        assert (pairs.client.rec["role"] == Role.CLIENT).all()
        assert (pairs.server.rec["role"] == Role.SERVER).all()
        found += joined(pairs)

    assert [(n, n) for n in sorted(clients & servers)] == sorted(found)
    assert len(clients ^ servers) == len(join)


def test_rows_of_the_batch_are_named_and_earlier_ones_are_minus_one():
    join = LocalJoin()
    join.join(batch_of([(1, Role.SERVER), (2, Role.CLIENT)]))

    pairs = join.join(batch_of([(9, Role.CLIENT), (2, Role.SERVER), (1, Role.CLIENT)]))

    by_client_row = {int(c): int(s) for c, s in zip(pairs.client_at, pairs.server_at, strict=True)}
    assert {2: -1, -1: 1} == by_client_row


def test_an_id_seen_twice_on_one_side_is_never_joined():
    join = LocalJoin()

    same_batch = join.join(batch_of([(1, Role.CLIENT), (1, Role.CLIENT), (1, Role.SERVER)]))
    join.join(batch_of([(2, Role.SERVER)]))
    later_batch = join.join(batch_of([(2, Role.SERVER)]))

    assert (0, 0, 0) == (len(same_batch), len(later_batch), len(join))


def test_excluded_and_unknown_halves_are_not_joined(make_halves):
    half = make_halves(
        {"role": Role.CLIENT, "excluded": Excluded.PIPELINED}, {"role": Role.SERVER, "excluded": Excluded.PIPELINED},
        {"role": Role.UNKNOWN, "request_seq": 1}, {"role": Role.SERVER, "request_seq": 1},
    )  # fmt: skip

    assert 0 == len(LocalJoin().join(half))


def test_of_too_many_halves_the_oldest_stop_waiting():
    join = LocalJoin(limit=3)
    for numbers in ((0, 1), (2, 3), (4, 5, 6, 7)):
        join.join(batch_of([(n, Role.CLIENT) for n in numbers]))
        assert 3 >= len(join)

    pairs = join.join(batch_of([(n, Role.SERVER) for n in range(8)]))

    assert [(n, n) for n in (5, 6, 7)] == joined(pairs)


@given(st.data(), st.integers(1, 12))
def test_no_half_stops_waiting_while_there_is_room_and_then_the_oldest_do(data, limit):
    join, waiting, number = LocalJoin(limit), [], 0
    for _ in range(data.draw(st.integers(1, 8))):
        gone = data.draw(st.lists(st.sampled_from(waiting), unique=True)) if waiting else []
        join.pull(batch_of([(n, Role.CLIENT) for n in gone]).join_key)
        come = range(number, number + data.draw(st.integers(0, 6)))
        join.join(batch_of([(n, Role.SERVER) for n in come]))
        number = come.stop
        waiting = [*(n for n in waiting if n not in gone), *come][-limit:]
        assert len(waiting) == len(join)

    pairs = join.join(batch_of([(n, Role.CLIENT) for n in range(number)]))

    assert [(n, n) for n in waiting] == joined(pairs)


@given(st.data(), st.integers(1, 12), st.sets(st.integers(0, 60), max_size=40))
def test_what_is_pulled_is_what_is_among_the_latest_and_nothing_twice(data, limit, numbers):
    sent = data.draw(st.permutations(sorted(numbers)))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sent)), max_size=4)))
    join = LocalJoin(limit)
    for start, end in zip([0, *cuts], [*cuts, len(sent)], strict=True):
        join.join(batch_of([(n, Role.SERVER) for n in sent[start:end]]))
    wanted = data.draw(st.lists(st.integers(0, 60), max_size=30))
    keys = batch_of([(n, Role.CLIENT) for n in wanted]).join_key

    found = join.pull(keys)

    latest = set(sent[-limit:])
    assert sorted(latest.intersection(wanted)) == sorted(found.duration_ns.tolist())
    assert 0 == len(join.pull(keys))
    assert len(latest.difference(wanted)) == len(join)


def test_a_pulled_half_is_not_joined_any_more():
    join = LocalJoin()
    server = batch_of([(1, Role.SERVER)])
    join.join(server)
    join.pull(server.join_key)
    assert 0 == len(join.join(batch_of([(1, Role.CLIENT)])))


def test_stages_and_what_exceeds_the_round_trip(make_halves):
    pairs = LocalJoin().join(
        make_halves(
            {"role": Role.CLIENT, "stages": (2_000, 90_000, 0, 3_000), "srtt_us": 30},
            {"role": Role.SERVER, "stages": (0, 4_000, 40_000, 1_000), "srtt_us": 0},
            {"role": Role.CLIENT, "stages": (2_000, 90_000, 0, 3_000), "request_seq": 1},
            {"role": Role.SERVER, "stages": (0, 4_000, 40_000, 1_000), "request_seq": 1},
        )
    )

    expected = {"client_send": 0, "network": 47_000, "server_read_delay": 4_000, "server_process": 40_000,
                "server_send": 1_000, "client_read_delay": 3_000}  # fmt: skip
    assert [expected] * 2 == [dict(zip(PAIR_STAGES, row, strict=True)) for row in pairs.stages.tolist()]
    assert ["network"] * 2 == [PAIR_STAGES[d] for d in pairs.dominant]
    excess = dict(zip(pairs.client.rec["request_seq"].tolist(), pairs.network_excess.tolist(), strict=True))
    assert 17_000 == excess[0]
    assert np.isnan(excess[1])
