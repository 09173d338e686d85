"""A snapshot as text: why it was taken, what it covers, who had each CPU, the longest calls, stacks. Pure."""

from collections.abc import Iterator
from math import ceil

import msgspec

from latencyprobe.report import units
from latencyprobe.text import printable
from latencyprobe_agent.recording.snapshot import CALL, SWITCH, WAKEUP, Cpu, Snapshot, Trigger
from latencyprobe_agent.recording.timeline import Slice, Track, busy, call_name, name, tracks
from latencyprobe_agent.recording.untold import untold
from latencyprobe_agent.vocabulary.returned import returned

_CHART = " ▁▂▃▄▅▆▇█"
_PARTS = 60
_LONGEST = 10
_CALLS = "%10s %-15s %-7s %-7s %-17s %9s %s"
_PLURALS = ((CALL, "calls"), (SWITCH, "switches"), (WAKEUP, "wake-ups"))
_KINDS = {CALL: "call", SWITCH: "switch", WAKEUP: "wakeup"}


def lines(snapshot: Snapshot) -> Iterator[str]:
    """Yield the summary, the timeline of each CPU, and the trigger's stacks."""
    header, of = snapshot.header, tracks(snapshot)
    yield title(snapshot)
    yield from facts(snapshot)
    yield from _timeline(snapshot, of)
    yield from _longest(header.trigger, of)
    yield from _stacks(header.trigger)


def title(snapshot: Snapshot) -> str:
    """Return why it was taken."""
    trigger = snapshot.header.trigger
    when = units.iso((trigger.time_ns + snapshot.header.unix_offset_ns) // 10**6 * 10**6)
    if not trigger.tracker:
        return f"asked for at {when}"
    what = printable(trigger.what) or printable(trigger.tracker)
    whose = f"{printable(trigger.comm) or '-'}, process {trigger.tgid}, thread {trigger.tid}"
    gave = f", returned {printable(trigger.returned)}" if trigger.returned else ""
    return f"{what} took {units.duration(trigger.duration_ns)}{gave}: {whose}, ended at {when}"


def facts(snapshot: Snapshot) -> Iterator[str]:
    """Yield what was kept, of whom, and what was not."""
    header = snapshot.header
    whose = [f"process {header.tgid}"] if header.tgid else []
    whose += [f"cgroup {header.cgroup_id}"] if header.cgroup_id else []
    whose += [f"threads named {printable(header.comm)}"] if header.comm else []
    above = f" above {units.duration(header.keep_above_ns)}" if header.keep_above_ns else ""
    kept = [printable(what) + (above if what == "syscalls" else "") for what in header.contents]
    counted = [sum(int((events["kind"] == kind).sum()) for events in snapshot.events) for kind, _ in _PLURALS]
    numbers = ", ".join(f"{n:,} {noun}" for n, (_, noun) in zip(counted, _PLURALS, strict=True) if n)
    yield f"kept: {', '.join(kept)} of {', '.join(whose) or 'all tasks'}, window {units.duration(header.window_ns)}"
    yield f"events: {numbers or 'none'}"
    lost = {printable(reason): n for reason, n in header.lost.items() if n}
    if missing := sum(cpu.missing for cpu in header.cpus):
        lost["missing"] = missing
    yield "not kept: " + (", ".join(f"{n:,} ({reason})" for reason, n in lost.items()) or "none")
    if any(kernel := untold(snapshot)):
        numbers = ", ".join(f"{n:,} {noun}" for n, noun in zip(kernel, ("switches", "wake-ups"), strict=True) if n)
        yield f"the kernel told no program of {numbers}"
    yield f"suppressed triggers before it: {header.suppressed}"


def coverage(cpu: Cpu, trigger: Trigger, window_ns: int) -> str:
    """Return how far back a CPU's events reach, and why not as far as was asked for."""
    before_ns = max(trigger.time_ns - cpu.from_ns, 0)
    if before_ns >= window_ns:
        return f"{units.duration(before_ns)} before the trigger"
    why = f"older ones were overwritten: {cpu.overwritten:,}" if cpu.overwritten else "the recorder had just begun"
    return f"only {units.duration(before_ns)} before the trigger ({why})"


def objects(snapshot: Snapshot) -> Iterator[str]:
    """Yield JSON lines: the header, then each event with its CPU; times are ns of boot time, as in the file."""
    yield msgspec.json.encode(snapshot.header).decode()
    for cpu, events in zip(snapshot.header.cpus, snapshot.events, strict=True):
        for event in events:
            found = {"cpu": cpu.cpu, **dict(zip(event.dtype.names, event.tolist(), strict=True))}
            found |= {"comm": name(found["comm"]), "other_comm": name(found["other_comm"])}
            if found["kind"] == CALL:
                found["syscall"] = call_name(snapshot.header, found["nr"], found["flags"])
            yield msgspec.json.encode({**found, "kind": _KINDS.get(found["kind"], "unknown")}).decode()


def _timeline(snapshot: Snapshot, of: list[Track]) -> Iterator[str]:
    header = snapshot.header
    if not of:
        yield "no CPU had an event"
        return
    since_ns = min(track.cpu.from_ns for track in of)
    until_ns = max(track.cpu.to_ns for track in of)
    switches = "switches" in header.contents
    what = "who is followed, running" if switches else "in calls that ended there"
    before = units.duration(max(header.trigger.time_ns - since_ns, 0))
    after = units.duration(max(until_ns - header.trigger.time_ns, 0))
    yield f"\n{what}, from {before} before the trigger until {after} after it:"
    for track in of:
        slices = track.running if switches else _flat(track.calls)
        shares = busy(slices, since_ns, until_ns, _PARTS)
        chart = "".join(_CHART[ceil(share * 8)] for share in shares)
        yield f"CPU {track.cpu.cpu:<3} |{chart}| {coverage(track.cpu, header.trigger, header.window_ns)}"


def _flat(calls: list[Slice]) -> list[Slice]:
    """Join calls that overlap."""
    joined: list[Slice] = []
    for call in calls:
        if joined and call.start_ns <= joined[-1].end_ns:
            joined[-1] = joined[-1]._replace(end_ns=max(joined[-1].end_ns, call.end_ns))
        else:
            joined.append(call)
    return joined


def _longest(trigger: Trigger, of: list[Track]) -> Iterator[str]:
    calls = sorted(
        (call for track in of for call in track.calls if not call.idle), key=lambda call: call.start_ns - call.end_ns
    )
    if not calls:
        return
    yield "\nthe longest calls but those that wait for work; ENDED: before or after the trigger"
    yield _CALLS % ("ENDED", "COMM", "TGID", "TID", "SYSCALL", "DURATION", "RET")
    for call in sorted(calls[:_LONGEST], key=lambda call: call.end_ns):
        took = units.duration(call.end_ns - call.start_ns)
        ended = signed(call.end_ns - trigger.time_ns)
        yield (_CALLS % (ended, call.comm or "-", call.tgid, call.tid, call.what, took, returned(call.ret))).rstrip()


def signed(ns: int) -> str:
    """Return a time before (-) or after (+) the trigger."""
    return f"{'-' if ns < 0 else '+'}{units.duration(abs(ns))}"


def _stacks(trigger: Trigger) -> Iterator[str]:
    for stack in trigger.kernel_stacks:
        yield f"\nwaited {units.duration(stack.waited_ns)}:"
        yield from (f" => {printable(frame)}" for frame in stack.frames)
    if trigger.user_stack:
        yield "\ncalled by:" if trigger.user_stack_complete else "\ncalled by (incomplete):"
        yield from (f" => {printable(frame)}" for frame in trigger.user_stack)
