"""The signal `waits`: why a server's `process` was long: on CPU, ready to run, or blocked, by system call.

Receives batches of WAIT records: of a request, where the time of the thread that served it went, and single long waits.
Rules: docs/design/evidence.md, "Waits".
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from latencyprobe.causes import (
    FOREIGN_CALL,
    NO_CALL,
    ON_CPU,
    OTHER,
    PAGE_FAULT,
    PREEMPTED,
    RUN_QUEUE,
    STOPPED,
    THROTTLED,
)
from latencyprobe_agent.signals.evidence import Evidence, Explains, Lasted, Sample
from latencyprobe_agent.signals.join_keys import SENT_BYTES, JoinKey, by_time_of_service
from latencyprobe_agent.signals.wakers import attributes_of_waker, stacks, with_waker
from latencyprobe_agent.vocabulary import conventions as names
from latencyprobe_agent.vocabulary import syscalls
from latencyprobe_agent.vocabulary.comm import comm
from latencyprobe_agent.vocabulary.conventions import Attribute, AttributeValue
from latencyprobe_agent.vocabulary.records import (
    SYSCALLS,
    WAIT,
    CallKind,
    Served,
    Waiter,
    WaitFlags,
    WaitKind,
    WaitNr,
)

# Calls in which a thread that serves nobody waits for work: such waits are nobody's.
IDLE_CALLS = (
    *("read", "readv", "recvfrom", "recvmsg", "recvmmsg", "accept", "accept4", "poll", "ppoll", "select", "pselect6"),
    *("epoll_wait", "epoll_wait_old", "epoll_pwait", "epoll_pwait2", "io_uring_enter", "io_getevents", "io_pgetevents"),
    *("futex", "futex_wait", "futex_waitv", "nanosleep", "clock_nanosleep", "restart_syscall", "pause", "wait4"),
    *("waitid", "rt_sigtimedwait", "rt_sigsuspend", "msgrcv", "mq_timedreceive", "semop", "semtimedop"),
)
# of a request's time, what is too little to be told among its causes
_TOLD_SHARE = 100
EVENTS = 8  # of one span
_STATES = {0: PREEMPTED, 1: "interruptible", 2: "disk", 4: STOPPED, 8: STOPPED}
_NOT_CALLS = {
    WaitNr.NR_FAULT: PAGE_FAULT,
    WaitNr.NR_FOREIGN: FOREIGN_CALL,
    WaitNr.NR_STOPPED: STOPPED,
    WaitNr.NR_NONE: NO_CALL,
}
_FOR_A_CPU = {THROTTLED: "throttled_ns", PREEMPTED: "preempted_ns"}  # of ready_ns; the rest it had been woken
_SERVED = np.array([one.name.lower() for one in Served])
_CONFIDENCE = np.array([one.name.lower() for one in Waiter])


def call_kinds() -> dict[bytes, bytes]:
    """Return the content of the map `call_kinds`: number → CALL_KIND, of all numbers."""
    idle = {syscalls.number(name) for name in IDLE_CALLS}
    kinds = ((nr, CallKind.IDLE if nr in idle else CallKind.WORK) for nr in range(SYSCALLS))
    return {np.uint32(nr).tobytes(): np.uint32(kind).tobytes() for nr, kind in kinds}


def call(nr: int) -> str:
    """Return the name of a call in a record: a system call's, or what stands in its place."""
    return _NOT_CALLS[WaitNr(nr)] if nr < 0 else syscalls.name(nr)


def columns(batch: NDArray[np.void]) -> Evidence:
    """Return a batch of WAIT records as evidence. A request's joins by the first byte of the answer, a wait by its time
    on the connection that it was for, if it was for one alone. Raises TypeError for records of another kind."""
    if batch.dtype != WAIT:
        raise TypeError(f"expected records of WAIT, got {batch.dtype}")
    served = batch["kind"] == WaitKind.SERVED
    key = KEY.of(
        batch["flow"],
        start_ns=batch["start_ns"],
        seq=np.where(served, batch["seq"], 0),
        end_seq=np.where(served, batch["seq"] + np.uint32(1), 0),
        alone=served | (batch["waiter"] == Waiter.THREAD),
        off_ns=np.where(served, batch["ready_ns"] + batch["blocked_ns"], 0),
    )
    return Evidence(batch, key, served | np.isin(batch["waiter"], [Waiter.THREAD, Waiter.PROCESS]))


def reason(record: np.void) -> str:
    """Return why a wait lasted: `throttled`, `preempted` or `run_queue` if it was mostly for a CPU, else how the task
    was blocked: `interruptible`, `disk` or `stopped`."""
    ready, throttled = int(record["ready_ns"]), int(record["throttled_ns"])
    if ready <= int(record["blocked_ns"]):
        return next(_STATES[bit] for bit in (8, 4, 2, 1) if int(record["state"]) & bit or bit == 1)
    if 2 * throttled > ready:
        return THROTTLED
    return PREEMPTED if record["flags"] & WaitFlags.PREEMPTED else RUN_QUEUE


def fields(record: np.void) -> Mapping[Attribute, AttributeValue]:
    """Return the attributes of a wait's span event; times in seconds."""
    found: dict[Attribute, AttributeValue] = {
        names.REASON: reason(record),
        names.WAIT_CONFIDENCE: str(_CONFIDENCE[record["waiter"]]),
        names.WAIT_THREAD: comm(record["flow"]["owner_comm"]),
        names.WAIT_THREAD_ID: int(record["flow"]["owner_tid"]),
    }
    if not record["flags"] & WaitFlags.PREEMPTED:
        found[names.WAIT_CALL] = call(int(record["call_nr"][0]))
    if record["ready_ns"]:
        found[names.WAIT_READY] = int(record["ready_ns"]) / 1e9
    return {**found, **attributes_of_waker(record)}


def shown(records: NDArray[np.void], wait_ns: NDArray[np.int64]) -> NDArray[np.intp]:
    """Return intp[m], which of the records of one span (WAIT[n], each with `wait_ns` inside of it) are events: the
    longest waits, longest first."""
    waits = np.flatnonzero((records["kind"] == WaitKind.ONE) & (wait_ns > 0))
    return waits[np.argsort(-wait_ns[waits], kind="stable")][:EVENTS]


def attributes(records: NDArray[np.void]) -> Mapping[Attribute, AttributeValue]:
    """Return the attributes of the span of an exchange whose split is known: seconds, which add up."""
    split = records[records["kind"] == WaitKind.SERVED]
    if not len(split):
        return {}
    parts = {
        names.PROCESS_ON_CPU: "on_cpu_ns",
        names.PROCESS_READY: "ready_ns",
        names.PROCESS_THROTTLED: "throttled_ns",
        names.PROCESS_BLOCKED: "blocked_ns",
    }
    found: dict[Attribute, AttributeValue] = {name: int(split[-1][field]) / 1e9 for name, field in parts.items()}
    calls = [f"{name} {ns / 1e9:.6f} s in {n}" for name, n, ns in _calls(split[-1])]
    return found | ({names.PROCESS_CALLS: "; ".join(calls)} if calls else {})


def causes(record: np.void) -> list[tuple[str, int, int]]:
    """Return where the time of a request went: (name, waits or 0, ns), longest first; they add up to all of it."""
    waited = {name: int(record[field]) for name, field in _FOR_A_CPU.items()}
    found = [
        *_calls(record),
        (ON_CPU, 0, int(record["on_cpu_ns"])),
        *((name, 0, ns) for name, ns in waited.items()),
        (RUN_QUEUE, 0, int(record["ready_ns"]) - sum(waited.values())),
    ]
    return sorted((one for one in found if one[2]), key=lambda one: -one[2])


def by_cause(records: NDArray[np.void], stands_for: NDArray[np.int64]) -> dict[str, int]:
    """Return where the time of all requests went whose accounts are among the records, ns by cause. `stands_for`: how
    many requests each is."""
    served = records["kind"] == WaitKind.SERVED
    rec, times = records[served], stands_for[served]
    used = rec["call_count"] > 0
    numbers, at = np.unique(rec["call_nr"][used], return_inverse=True)
    of_calls = np.zeros(len(numbers), np.int64)
    np.add.at(of_calls, at, (rec["call_ns"].astype(np.int64) * times[:, None])[used])

    def total(field: str) -> int:
        return int((rec[field].astype(np.int64) * times).sum())

    waited = {name: total(field) for name, field in _FOR_A_CPU.items()}
    found = {
        **{call(nr): ns for nr, ns in zip(numbers.tolist(), of_calls.tolist(), strict=True)},
        **waited,
        ON_CPU: total("on_cpu_ns"),
        RUN_QUEUE: total("ready_ns") - sum(waited.values()),
        OTHER: total("other_ns"),
    }
    return {cause: ns for cause, ns in found.items() if ns}


def describe(record: np.void, new_ns: int) -> list[tuple[str, int, int]]:
    """Return the causes of a request's time that are more than a hundredth of it; of a wait of a thread that is not
    known to have served it, its name and what it explains. Locks say who ended the wait, or the longest of several."""
    if record["kind"] == WaitKind.SERVED:
        found = with_waker(record, causes(record))
        least = sum(ns for *_, ns in found) / _TOLD_SHARE
        return [one for one in found if one[2] > least]
    if record["waiter"] == Waiter.THREAD:
        return []  # part of the request's own account
    blocked = record["blocked_ns"] >= record["ready_ns"]
    return [(f"{call(int(record['call_nr'][0])) if blocked else reason(record)} (another thread)", 1, new_ns)]


def samples(evidence: Evidence) -> Sequence[Sample]:
    """Return durations (s) of long waits: in calls by their name, and for a CPU by reason."""
    rec = evidence.rec
    one = rec["kind"] == WaitKind.ONE
    in_call = one & (rec["blocked_ns"] >= rec["ready_ns"])
    calls, ready = np.flatnonzero(in_call), np.flatnonzero(one & ~in_call)
    reasons = np.array([reason(record) for record in rec[ready]], np.str_)
    of_calls = np.array([call(int(nr)) for nr in rec["call_nr"][calls, 0]], np.str_)
    return (
        Sample(names.SYSCALL_DURATION, calls, rec["blocked_ns"][calls] / 1e9, {names.WAIT_CALL: of_calls}),
        Sample(names.OFFCPU_DURATION, ready, rec["ready_ns"][ready] / 1e9, {names.REASON: reasons}),
    )


def counted(keys: NDArray[np.void], gained: NDArray[np.void]) -> Sequence[Sample]:
    """Return slow requests by how much is known of them, and long waits by whom they may explain."""
    rows, how = np.nonzero(gained["served"])
    of_waits, waiter = np.nonzero(gained["waits"])
    return (
        Sample(names.SLOW_REQUESTS, rows, gained["served"][rows, how], {names.SPLIT: _SERVED[how]}),
        Sample(names.WAITS, of_waits, gained["waits"][of_waits, waiter], {names.WAIT_CONFIDENCE: _CONFIDENCE[waiter]}),
    )


def _calls(record: np.void) -> Iterator[tuple[str, int, int]]:
    """Yield (name, waits, ns) of a request's calls, longest first; `other` for those without a place of their own."""
    used = [i for i in range(len(record["call_ns"])) if record["call_count"][i]]
    for i in sorted(used, key=lambda i: -int(record["call_ns"][i])):
        yield call(int(record["call_nr"][i])), int(record["call_count"][i]), int(record["call_ns"][i])
    if record["other_ns"]:
        yield OTHER, 0, int(record["other_ns"])


def _find(recent: NDArray[np.void], key: NDArray[np.void]) -> NDArray[np.intp]:
    found = np.empty(len(key), np.intp)
    for rows, find in (
        (key["seq"] != key["end_seq"], SENT_BYTES.find),
        (key["seq"] == key["end_seq"], by_time_of_service),
    ):
        found[rows] = find(recent, key.take(np.flatnonzero(rows)))
    return found


def _lasted(half: NDArray[np.void], key: NDArray[np.void]) -> Lasted:
    """A request's account is all that it did not run, at the end of its time; a wait, what lies inside it. A wait of
    the thread that served is in the account: only others add to what is explained."""
    start_ns, end_ns = half["read_last_ns"], half["send_start_ns"]
    served = key["seq"] != key["end_seq"]
    until_ns = np.where(served, end_ns, np.minimum(key["at_ns"], end_ns))
    since_ns = np.where(served, end_ns - key["off_ns"], key["start_ns"])
    wait_ns = np.maximum(until_ns - np.maximum(since_ns, start_ns), 0)
    return Lasted(until_ns, wait_ns, served | ~key["alone"])


KEY = JoinKey(
    np.dtype([*SENT_BYTES.columns.descr, ("start_ns", "i8"), ("off_ns", "i8"), ("alone", "?")]),
    _find,
)
EXPLAINS = Explains(
    names.WAIT_EVENT,
    fields,
    samples,
    describe,
    attributes,
    counted=counted,
    lasted=_lasted,
    shown=shown,
    stacks=stacks,
    causes=by_cause,
)
