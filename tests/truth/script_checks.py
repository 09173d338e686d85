"""Compares what was measured of a played script with the model (turns.py) and with what the script itself knows."""

from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from latencyprobe_agent.vocabulary.records import ExchangeClass, ExchangeFlags, Excluded, Outcome, Role
from tests.truth.played import OTHER, Moved, Played
from tests.truth.scripts import IDLE_NS, MS, PAUSE_NS, Do, Fate, Request
from tests.truth.turn_events import Turn
from tests.truth.turns import OneEnd

CLIENT, SERVER = Role.CLIENT, Role.SERVER
TLS_TURNS = 2  # that are set-up
FLAGS = {
    ExchangeFlags.OVERLAP: "overlap",
    ExchangeFlags.REQUEST_RESUMED: "resumed",
    ExchangeFlags.MAYBE_CUT: "cut",
    ExchangeFlags.CLOSED: "closed",
}


def modelled(played: Played, *, tls: bool = False) -> dict[Role, OneEnd]:
    """What both ends should have made of it."""
    setup = TLS_TURNS if tls else 0
    ends = {role: OneEnd(role, PAUSE_NS, setup_turns=setup, tls=tls, idle_ns=IDLE_NS) for role in (CLIENT, SERVER)}
    for role, event in played.events:
        ends[role].see(event)
    return ends


def undecided(played: Played, ends: dict[Role, OneEnd]) -> str:
    """Why the log does not show what the ends must have made of it, or ""."""
    if played.doubtful:
        return played.doubtful
    if 2 * played.rtt_ns > PAUSE_NS:
        return "two round trips are longer than the pause"
    return "a gap is near its threshold" if any(end.undecided for end in ends.values()) else ""


def line_of_turn(turn: Turn) -> str:
    """One turn of the model, as `line_of_record` writes records."""
    flags = [name for name in FLAGS.values() if getattr(turn, name)]
    return _line(turn.conn_class, turn.excluded, turn.outcome, flags, turn)


def line_of_record(record: np.void) -> str:
    """What must be equal of a record."""
    flags = [name for flag, name in FLAGS.items() if record["flags"] & flag]
    return _line(int(record["conn_class"]), int(record["excluded"]), int(record["outcome"]), flags, record)


def _line(conn_class: int, excluded: int, outcome: int, flags: list[str], sizes: Turn | np.void) -> str:
    def of(name: str) -> int:
        return int(getattr(sizes, name) if isinstance(sizes, Turn) else sizes[name])

    words = [ExchangeClass(conn_class).name, Excluded(excluded).name if excluded else Outcome(outcome).name, *flags]
    where = [f"{m} {of(f'{n}_offset')}+{of(f'{n}_bytes')}" for m, n in (("A", "request"), ("B", "response"))]
    return " ".join([*words, *where])


def stamps_ns(records: NDArray[np.void]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(First, last) stamp of each half: its duration lies between them."""
    server = records["role"] == SERVER
    first = np.where(server, records["ready_first_ns"], records["send_start_ns"])
    lasts = ["send_start_ns", "send_end_ns", "ready_first_ns", "ready_last_ns", "read_last_ns"]
    return first.astype(np.int64), np.max([records[name].astype(np.int64) for name in lasts], axis=0)


def as_told(turn: Turn, record: np.void, other: OneEnd) -> Turn:
    """What an end makes of its turn with what the other end, on this host, tells it.

    The server's tells the client's that requests overtake responses, once it has found out; the client's tells the
    server's which bytes it had sent without a look at the answer.
    """
    if other.role is CLIENT:
        late = any(ns <= turn.ended_ns and turn.request_offset < upto for ns, upto in other.late)
        return replace(turn, excluded=Excluded.OVERLAP) if late and not turn.excluded else turn
    found = any(turn.excluded in (Excluded.PIPELINED, Excluded.MULTIPLEXED) for turn in other.turns)
    if found and turn.excluded in (Excluded.NONE, Excluded.OVERLAP) and record["excluded"] == Excluded.PIPELINED:
        return replace(turn, excluded=Excluded.PIPELINED, conn_class=ExchangeClass.PIPELINED)
    return turn


def off_the_model(turn: Turn, record: np.void) -> str:
    """How a record differs from its turn, or ""."""
    if line_of_turn(turn) != line_of_record(record):
        return "differs"
    if turn.excluded is not Excluded.NONE:
        return ""
    for name, event, stamp in zip(("begins", "ends"), (turn.start, turn.end), stamps_ns(record), strict=True):
        if not event.ns <= stamp <= event.last_ns:
            late_ns = stamp - event.last_ns if stamp > event.ns else stamp - event.ns
            return f"{name} {late_ns / MS:+.3f} ms beside its {event.kind.name}"
    return ""


@dataclass
class Truth:
    """What a script knows of the events that were made of it. `seen`: what they were, how often."""

    played: Played
    seen: Counter[str] = field(default_factory=Counter)

    def wrong(self, record: np.void) -> str:
        """Why this event is none, or ""."""
        a = (int(record["request_offset"]), int(record["request_offset"] + record["request_bytes"]))
        b = (int(record["response_offset"]), int(record["response_offset"] + record["response_bytes"]))
        for limit in self.played.script.limits:
            if a[0] < limit.a_to and limit.a_from < a[1]:
                self.seen[f"known limit: {limit.why}"] += 1
                return ""
        if record["outcome"] != Outcome.OK:
            return self._wrong_failure(a)
        return self._wrong_answer(record, a, b)

    def _wrong_failure(self, a: tuple[int, int]) -> str:
        for request in self.played.script.requests:
            if a[0] in (request.a_from, *request.parts) and a[1] == request.a_to:
                if request.fate is Fate.FAILED:
                    self.seen["failed"] += 1
                    return ""
                return "failed, but its client got the answer"
        return "failed, but is no request"

    def _wrong_answer(self, record: np.void, a: tuple[int, int], b: tuple[int, int]) -> str:
        asked = [r for r in self.played.script.requests if r.a_from < a[1] and a[0] < r.a_to]
        if not asked:
            return "is no request"
        first, last = asked[0], asked[-1]
        if any(r.fate is not Fate.ANSWERED for r in asked):
            return "was never answered"
        if a[0] not in (first.a_from, *first.parts) or (a[1] != last.a_to and not _so_far(last, a[1])):
            return "is not a whole request"
        if b != (first.b_from, last.b_to):
            return "is not its whole answer"
        return self._wrong_time(record, a, b) or self._note("a batch" if len(asked) > 1 else "answered")

    def _wrong_time(self, record: np.void, a: tuple[int, int], b: tuple[int, int]) -> str:
        role = Role(int(record["role"]))
        begun = self._moved(Do.SEND, CLIENT, a[0] + 1)
        ended = self._moved(Do.READ, CLIENT, b[1]) if role is CLIENT else self._moved(Do.SEND, SERVER, b[1])
        first_ns, last_ns = stamps_ns(record)
        if not begun.ns <= first_ns <= (begun.until_ns if role is CLIENT else begun.arrived_ns):
            return "does not begin with its request"
        return "" if ended.ns <= last_ns <= ended.until_ns else "does not end with its answer"

    def _moved(self, do: Do, end: Role, upto: int) -> Moved:
        return next(m for m in self.played.moved if m.do is do and m.end is end and m.upto >= upto)

    def _note(self, what: str) -> str:
        self.seen[what] += 1
        return ""


def _so_far(request: Request, upto: int) -> bool:
    """Tell whether the rest of an upload came after its answer."""
    return request.early and upto in request.parts


def side_by_side(ends: dict[Role, OneEnd], role: Role, records: NDArray[np.void], begin_ns: int) -> str:
    """The model's turns and the kernel's records of one end, a pair of lines each where they differ."""
    lines, turns = [], ends[role].turns
    for number in range(max(len(turns), len(records))):
        turn = turns[number] if number < len(turns) else None
        record = records[number] if number < len(records) else None
        if turn and record is not None:
            turn = as_told(turn, record, ends[OTHER[role]])
        expected, found = line_of_turn(turn) if turn else "-", line_of_record(record) if record is not None else "-"
        if expected == found:
            lines.append(f"    both:   {expected}")
        else:
            lines += [f"  ! model:  {expected}", f"    kernel: {found}"]
        if record is not None:
            first, last = ((int(ns) - begin_ns) / MS for ns in stamps_ns(record))
            lines[-1] += f"   {first:.3f} .. {last:.3f} ms"
        if turn and record is not None and (why := off_the_model(turn, record)):
            lines[-1] += f" ! {why}"
    return "\n".join(lines)
