"""What the signal `waits` says of its records: where a request's time went, which waits join, what metrics get."""

import numpy as np
import pytest

from latencyprobe.causes import is_cause
from latencyprobe_agent.measure.evidence_join import EvidenceJoin
from latencyprobe_agent.measure.recent import RecentHalves
from latencyprobe_agent.signals import waits
from latencyprobe_agent.vocabulary import conventions as names
from latencyprobe_agent.vocabulary import syscalls
from latencyprobe_agent.vocabulary.records import (
    COUNTS_KEY,
    EVIDENCE_COUNTS,
    WAIT,
    CallKind,
    Role,
    Served,
    Waiter,
    WaitFlags,
    WaitKind,
    WaitNr,
)

MS = 1_000_000
FSYNC, FUTEX, SLEEP = 74, 202, 230
START_NS = 1_000 * MS

pytestmark = pytest.mark.skipif(syscalls.name(FSYNC) != "fsync", reason="arm64 execution")


def record(**fields):
    made = np.zeros(1, WAIT)
    made["flow"]["sock_cookie"] = 1
    made["start_ns"] = START_NS
    for name, value in fields.items():
        (made["flow"] if name in made["flow"].dtype.names else made)[name] = value
    return made


def served(boot_ms=112):
    """100 ms in two fsyncs, 3 in a futex, 4 ready, of which 1 throttled and 2 preempted, 5 on CPU."""
    made = record(kind=WaitKind.SERVED, boot_ns=START_NS + boot_ms * MS, seq=500, on_cpu_ns=5 * MS, ready_ns=4 * MS)
    made["throttled_ns"], made["preempted_ns"], made["blocked_ns"] = 1 * MS, 2 * MS, 103 * MS
    made["call_nr"][0, :2], made["call_count"][0, :2] = (FUTEX, FSYNC), (7, 2)
    made["call_ns"][0, :2] = (3 * MS, 100 * MS)
    return made


def wait(nr=FSYNC, from_ms=0, to_ms=50, waiter=Waiter.THREAD, **fields):
    made = record(kind=WaitKind.ONE, waiter=waiter, boot_ns=START_NS + to_ms * MS, state=1, **fields)
    made["start_ns"] = START_NS + from_ms * MS
    made["call_nr"][0, 0], made["call_count"][0, 0] = nr, 1
    made["blocked_ns"] = (to_ms - from_ms) * MS - made["ready_ns"]
    made["flow"]["owner_comm"] = np.frombuffer(b"worker".ljust(16, b"\0"), np.uint8)
    made["flow"]["owner_tid"] = 77
    return made


def ready(ms=50, throttled_ms=0, **fields):
    made = wait(to_ms=ms, ready_ns=ms * MS, throttled_ns=throttled_ms * MS, **fields)
    made["blocked_ns"] = 0
    return made


def half(make_halves, **fields):
    """Its request was read at START_NS, its answer begun 112 ms later."""
    at = {"start_ns": START_NS - MS, "read_last_ns": START_NS, "send_start_ns": START_NS + 112 * MS}
    sent = {"sock_cookie": 1, "response_seq": 500, "response_bytes": 10}
    made = make_halves({"role": Role.SERVER, **sent, **fields})
    for name in ("read_last_ns", "send_start_ns"):
        made.rec[name] = at[name]
    made.start_ns[:] = at["start_ns"]
    made.end_ns[:] = START_NS + 113 * MS
    return made


def joined(make_halves, *records):
    join = EvidenceJoin(RecentHalves(), waits.KEY, lasted=waits.EXPLAINS.lasted)
    join.recent.keep(half(make_halves))
    return join.join(waits.columns(np.concatenate(records)), START_NS + 200 * MS)


def test_the_causes_of_a_requests_time_add_up_to_it_longest_first():
    (one,) = served()
    assert [
        ("fsync", 2, 100 * MS),
        ("on CPU", 0, 5 * MS),
        ("futex", 7, 3 * MS),
        ("preempted", 0, 2 * MS),
        ("throttled", 0, 1 * MS),
        ("run_queue", 0, 1 * MS),
    ] == waits.causes(one)
    assert 112 * MS == sum(ns for *_, ns in waits.causes(one))


def test_causes_of_many_requests_are_the_sum_of_each_for_as_many_as_it_stands_for():
    one, other = served(), served()
    other["call_nr"][0, 0], other["other_ns"] = WaitNr.NR_FAULT, 2 * MS
    found = waits.by_cause(np.concatenate([one, wait(), other]), np.array([1, 7, 4]))
    expected = {
        "fsync": 500 * MS,
        "futex": 3 * MS,
        "page_fault": 12 * MS,
        "other": 8 * MS,
        "on CPU": 25 * MS,
        "run_queue": 5 * MS,
        "preempted": 10 * MS,
        "throttled": 5 * MS,
    }
    assert expected == found, "a single wait is part of its request's account"
    assert {} == waits.by_cause(wait(), np.ones(1, np.int64))
    of_each = [{name: ns for name, _, ns in waits.causes(record)} for record in (one[0], other[0])]
    assert expected == {
        cause: sum(n * ns.get(cause, 0) for n, ns in zip((1, 4), of_each, strict=True)) for cause in expected
    }
    assert all(map(is_cause, expected))


def test_every_name_that_a_call_can_have_is_a_cause():
    assert all(is_cause(waits.call(nr)) for nr in (*range(600), *WaitNr))


def test_a_list_of_slow_exchanges_tells_causes_of_more_than_a_hundredth():
    (one,) = served()
    assert ["fsync", "on CPU", "futex", "preempted"] == [what for what, *_ in waits.describe(one, 0)]
    (of_thread,), (of_process,) = wait(), wait(waiter=Waiter.PROCESS)
    assert [] == waits.describe(of_thread, 0), "it is part of the request's account"
    assert [("fsync (another thread)", 1, 7 * MS)] == waits.describe(of_process, 7 * MS)


def test_calls_beyond_those_with_a_place_are_others():
    one = served()
    one["other_ns"] = 2 * MS
    assert ("other", 0, 2 * MS) in waits.causes(one[0])


def test_a_span_gets_the_split_of_its_process():
    assert {
        names.PROCESS_ON_CPU: 0.005,
        names.PROCESS_READY: 0.004,
        names.PROCESS_THROTTLED: 0.001,
        names.PROCESS_BLOCKED: 0.103,
        names.PROCESS_CALLS: "fsync 0.100000 s in 2; futex 0.003000 s in 7",
    } == waits.attributes(np.concatenate([wait(), served()]))
    assert {} == waits.attributes(wait()), "the account is lost"


def test_a_wait_has_its_call_reason_thread_and_how_sure_that_is():
    (one,) = wait(ready_ns=2 * MS)
    assert {
        names.REASON: "interruptible",
        names.WAIT_CONFIDENCE: "thread",
        names.WAIT_CALL: "fsync",
        names.WAIT_THREAD: "worker",
        names.WAIT_THREAD_ID: 77,
        names.WAIT_READY: 0.002,
    } == waits.fields(one)


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (wait(), "interruptible"),
        (ready(), "run_queue"),
        (ready(flags=WaitFlags.PREEMPTED), "preempted"),
        (ready(throttled_ms=30, flags=WaitFlags.PREEMPTED), "throttled"),
        (ready(throttled_ms=30), "throttled"),
    ],
)
def test_why_a_wait_lasted(made, reason):
    assert reason == waits.reason(made[0])


@pytest.mark.parametrize(("state", "reason"), [(1, "interruptible"), (2, "disk"), (0x402, "disk"), (8, "stopped")])
def test_how_a_task_was_blocked(state, reason):
    made = wait()
    made["state"] = state
    assert reason == waits.reason(made[0])


@pytest.mark.parametrize("nr", WaitNr)
def test_what_stands_in_place_of_a_call_has_a_name(nr):
    assert waits.call(nr)


def test_spans_show_the_eight_longest_waits_and_no_account():
    records = np.concatenate([served(), *(wait(to_ms=ms) for ms in range(1, 12))])
    wait_ns = np.array([112, *range(1, 12)]) * MS
    assert [11, 10, 9, 8, 7, 6, 5, 4] == waits.shown(records, wait_ns).tolist()


def test_an_account_joins_the_answer_that_it_ends_with_and_a_wait_its_request(make_halves):
    found = joined(make_halves, wait(from_ms=10, to_ms=60), served())
    assert [1, 1] == found.half["sock_cookie"].tolist()
    assert [50 * MS, 107 * MS] == found.wait_ns.tolist()
    assert [0, 107 * MS] == found.new_ns.tolist(), "the wait is in the account"


def test_a_wait_of_another_thread_counts_as_far_as_it_lies_inside(make_halves):
    found = joined(make_halves, wait(from_ms=-40, to_ms=60, waiter=Waiter.PROCESS))
    assert ([60 * MS], [60 * MS]) == (found.wait_ns.tolist(), found.new_ns.tolist())
    found = joined(make_halves, wait(from_ms=100, to_ms=150, waiter=Waiter.PROCESS))
    assert [12 * MS] == found.wait_ns.tolist()


@pytest.mark.parametrize("waiter", [Waiter.AMBIGUOUS, Waiter.NOBODY])
def test_a_wait_that_may_be_of_several_requests_or_of_none_joins_none(make_halves, waiter):
    assert joined(make_halves, wait(waiter=waiter)) is None


def test_a_wait_before_or_after_a_request_is_not_its(make_halves):
    assert joined(make_halves, wait(from_ms=-90, to_ms=-40, waiter=Waiter.PROCESS)) is None
    assert joined(make_halves, wait(from_ms=112, to_ms=150, waiter=Waiter.PROCESS)) is None


def test_metrics_have_waits_by_call_or_reason():
    batch = np.concatenate([served(), wait(), wait(SLEEP, to_ms=20), ready(30, throttled_ms=30)])
    in_calls, for_cpu = waits.samples(waits.columns(batch))
    assert (["fsync", "clock_nanosleep"], [0.05, 0.02]) == (
        in_calls.labels[names.WAIT_CALL].tolist(),
        in_calls.values.tolist(),
    )
    assert (["throttled"], [0.03]) == (for_cpu.labels[names.REASON].tolist(), for_cpu.values.tolist())


def test_metrics_have_what_the_kernel_has_counted():
    gained = np.zeros(1, EVIDENCE_COUNTS)
    gained["served"][0, Served.AMBIGUOUS], gained["waits"][0, Waiter.PROCESS] = 4, 3
    requests, waited = waits.counted(np.zeros(1, COUNTS_KEY), gained)
    assert (["ambiguous"], [4]) == (requests.labels[names.SPLIT].tolist(), requests.values.tolist())
    assert (["process"], [3]) == (waited.labels[names.WAIT_CONFIDENCE].tolist(), waited.values.tolist())


def test_the_kernel_is_told_of_every_call_whether_it_is_one_in_which_threads_wait_for_work():
    kinds = {int.from_bytes(nr, "little"): int.from_bytes(kind, "little") for nr, kind in waits.call_kinds().items()}
    assert CallKind.UNKNOWN not in kinds.values()
    assert (CallKind.IDLE, CallKind.WORK) == (kinds[FUTEX], kinds[FSYNC])
    assert all(syscalls.number(name) is not None for name in waits.IDLE_CALLS)


def test_other_records_are_refused():
    with pytest.raises(TypeError):
        waits.columns(np.zeros(1, "u8"))
