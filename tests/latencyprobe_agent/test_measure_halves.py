"""Records to halves: roles choose the cut points, and both halves of an exchange get the same ids."""

import numpy as np

from latencyprobe_agent.measure.halves import Halves, Sleep, flag_suspended, halves
from latencyprobe_agent.vocabulary.records import EXCHANGE, ExchangeFlags, Excluded, Role

PLACE = {"request_seq": 7, "response_seq": 9, "request_offset": 100, "response_offset": 200}


def test_each_role_is_cut_at_its_own_points(make_halves):
    half = make_halves(
        {"role": Role.SERVER, "start_ns": 50, "stages": (1, 2, 30, 4)},
        {"role": Role.CLIENT, "start_ns": 40, "stages": (10, 20, 3, 4)},
    )

    assert [[1, 2, 30, 4], [10, 20, 3, 4]] == half.stages.tolist()
    assert [2, 1] == half.dominant.tolist()
    assert ([50, 40], [87, 77], [37, 37]) == tuple(x.tolist() for x in (half.start_ns, half.end_ns, half.duration_ns))


def test_both_halves_of_an_exchange_have_the_same_ids_and_different_spans(make_halves):
    half = make_halves(
        {"role": Role.SERVER, "stages": (1, 2, 3, 4), **PLACE},
        {"role": Role.CLIENT, "stages": (5, 6, 7, 8), "local": "fd00::9", **PLACE},
    )

    assert half.join_key[0] == half.join_key[1]
    trace_ids = half.trace_ids(b"key")
    assert trace_ids[0].tolist() == trace_ids[1].tolist()


def test_halves_that_were_cut_differently_have_different_ids(make_halves):
    half = make_halves(
        {"role": Role.SERVER, **PLACE, "response_bytes": 10}, {"role": Role.CLIENT, **PLACE, "response_bytes": 11}
    )

    assert half.join_key[0] != half.join_key[1]
    trace_ids = half.trace_ids(b"key")
    assert trace_ids[0].tolist() != trace_ids[1].tolist()


def test_overlapping_stamps_are_flagged_in_the_record():
    batch = np.zeros(1, EXCHANGE)
    batch["role"] = Role.CLIENT
    for name, stamp in {"send_start_ns": 10, "send_end_ns": 30, "ready_first_ns": 20, "read_last_ns": 40}.items():
        batch[name] = stamp

    assert ExchangeFlags.STAGE_OVERLAP == halves(batch).rec["flags"][0]


def test_halves_that_cross_a_sleep_of_the_host_are_flagged_and_no_others(make_halves):
    second = 10**9
    some = make_halves(
        *(
            {"role": Role.SERVER, "start_ns": start * second // 10, "stages": (0, 0, length * second // 10, 0)}
            for start, length in ((10, 2), (12, 100), (19, 45), (60, 1), (62, 30), (5, 200))
        )
    )
    # it slept for 4 s between 1.9 s and 6.1 s: before, across, across, awake again within, after, across
    flag_suspended(some, [Sleep(1_900_000_000, 6_100_000_000, 4 * second)])
    assert [False, True, True, False, False, True] == (some.rec["flags"] & ExchangeFlags.SUSPENDED != 0).tolist()


def test_only_exchanges_that_no_reason_excludes_are_counted(make_halves):
    half = make_halves({"role": Role.CLIENT}, {"role": Role.CLIENT, "excluded": Excluded.SETUP})

    assert [True, False] == half.counted.tolist()


def test_taking_and_concatenating_rows_keeps_every_column_together(make_halves):
    half = make_halves(*({"role": Role.CLIENT, "stages": (i, 0, 0, 0), "request_seq": i} for i in range(5)))

    again = Halves.concatenate([half.take(np.array([4, 3])), half.take(np.arange(0)), half.take(half.duration_ns < 3)])

    assert [4, 3, 0, 1, 2] == again.duration_ns.tolist() == again.rec["request_seq"].tolist()
    assert again.join_key.tolist() == half.join_key[[4, 3, 0, 1, 2]].tolist()
