"""Join the RPCs that a server made while it processed one to that one: by thread and time, on one node.

Halves come batch by batch; what they say of each other is settled once all of them must be here. Receives halves,
returns `Called`. Bounded, and what becomes of each client half is counted. Rules: docs/design/evidence.md, "Its own
calls".
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latencyprobe_agent.measure.call_processes import Processes, kinds
from latencyprobe_agent.measure.call_room import GROWN, CallRoom
from latencyprobe_agent.measure.halves import Halves
from latencyprobe_agent.measure.nesting import covered_ns, nest, overlapping_others
from latencyprobe_agent.measure.sampling import Reason, Sampled
from latencyprobe_agent.vocabulary.records import Excluded, Role
from latencyprobe_agent.vocabulary.values import AMBIGUOUS

# A quiet exchange ends 2 s after its last byte (idle timeout), is noticed up to 1 s later (tick) and drained by then.
SETTLE_NS = 3_500_000_000
_LOOK_NS = 1_000_000_000  # this often at most
HELD_NS = SETTLE_NS + _LOOK_NS  # from the end of an exchange until it is told whom it called
_WAIT_NS = 60_000_000_000  # for a server half that is still open
_SHARED_NS = 600_000_000_000  # a thread that was found to serve several at a time is taken for one that does
_SHARED = 4_096  # such threads at a time
_TOLD = 1 << 14  # threads of which it is remembered, by the low bits of their numbers
_FOR_MORE_THAN_THEIR_SHARE = [one + 1 for one in (Reason.ERROR, Reason.SLOW, Reason.OTHER_HALF)]
_EARLY = 1_024  # of the latest halves are kept of processes that only serve or only call: they may do the other yet


@dataclass(frozen=True)
class Called:
    """m server halves that waited for k client halves of the same thread. `of`: intp[k], the server half of each client
    half, ascending; those of one server half in the order in which they began. `new_ns`: i64[k], what each adds to the
    time that its server half waited. Of both sides `sampled` is what has become of them since they came."""

    server: Halves
    client: Halves
    of: NDArray[np.intp]
    new_ns: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.of)


class _Early(NamedTuple):
    """A batch as it came: the kinds of its processes, and which of it are halves that can be joined."""

    halves: Halves
    kind: NDArray[np.intp]
    either: NDArray[np.bool_]
    came_ns: int


class CallJoin:
    """`limit`: of halves that wait: 5,000 a second for 6 s."""

    def __init__(self, limit: int = 32_768) -> None:
        self._outcomes: Counter[str] = Counter(dict.fromkeys(_OUTCOMES, 0))
        self._room = CallRoom(limit)
        self._looked_ns = 0
        self._processes = Processes()
        self._early: list[_Early] = []  # of processes that may turn out to do both
        self._told = np.zeros(_TOLD, [("thread", "u8"), ("end_ns", "i8")])  # the last server half that was settled
        self._shared: dict[int, int] = {}  # thread → until when

    def __len__(self) -> int:
        return len(self._room)

    @property
    def outcomes(self) -> Mapping[str, int]:
        """Client halves of processes that serve too, by what became of them; those that still wait are in none."""
        return {**self._outcomes, "no_room": self._room.no_room}

    def keep(self, some: Halves, now_ns: int) -> None:
        """Take in a batch of halves that have ended."""
        if not len(some):
            return
        server, client = some.rec["role"] == Role.SERVER, (some.rec["role"] == Role.CLIENT) & some.counted
        kind, either = kinds(some.rec["reader_tgid"]), server | client
        both = self._processes.note(kind, server, client, now_ns)
        for early in self._early if both.any() else ():
            self._take(early.halves, early.either & both[early.kind], now_ns)
        if self._processes.both.any():
            self._take(some, either & self._processes.both[kind], now_ns)
        self._keep_early(some, kind, either, now_ns)

    def _keep_early(self, some: Halves, kind: NDArray[np.intp], either: NDArray[np.bool_], now_ns: int) -> None:
        """Keep the latest of a batch in the place of older ones: copies, for its memory is to be used again."""
        last = np.arange(max(0, len(some) - _EARLY), len(some))
        self._early.append(_Early(some.take(last), kind[last], either[last], now_ns))
        newer = 0
        for i in range(len(self._early) - 1, -1, -1):
            if newer >= _EARLY or now_ns - self._early[i].came_ns > _WAIT_NS:
                del self._early[: i + 1]
                break
            newer += len(self._early[i].kind)

    def note_sampled(self, sampled: Sampled) -> None:
        """Note which halves have become spans that were none when they came."""
        rows, late = self._room.rows, sampled.reason == Reason.OTHER_HALF
        servers = sampled.halves.rec["role"] == Role.SERVER
        for server in (True, False) if late.any() else ():
            keys = sampled.halves.join_key[late & (servers == server)]
            rows["sampled"][(rows["server"] == server) & np.isin(rows["join_key"], keys)] = Reason.OTHER_HALF + 1
            for early in self._early:
                of_side = (early.halves.rec["role"] == Role.SERVER) == server
                early.halves.sampled[of_side & np.isin(early.halves.join_key, keys)] = Reason.OTHER_HALF + 1

    def open(self, now_ns: int) -> NDArray[np.uint64]:
        """Return u64[m], join keys of the spans of which it may still come out whom they called, or who called.
        `now_ns`: of the boot clock."""
        rows = self._room.rows
        young = now_ns - rows["end_ns"] <= HELD_NS
        found = [rows["join_key"][(rows["sampled"] > 0) & ~rows["gone"] & (rows["inside"] | young)]]
        for early in self._early if now_ns - self._processes.newest_ns <= HELD_NS else ():
            at = np.isin(early.halves.sampled, _FOR_MORE_THAN_THEIR_SHARE) & early.either
            at &= now_ns - early.halves.end_ns <= HELD_NS
            at &= self._processes.younger(early.kind, HELD_NS, now_ns) & ~self._processes.both[early.kind]
            found.append(early.halves.join_key[at])
        return np.concatenate(found)

    def settle(self, now_ns: int, *, all_of_them: bool = False) -> Called | None:
        """Return the calls of the server halves of which all must be here by now; `all_of_them`: nothing more comes."""
        if now_ns - self._looked_ns < _LOOK_NS and not all_of_them:
            return None
        self._looked_ns = now_ns
        rows = self._room.rows
        server, client = np.flatnonzero(rows["server"]), np.flatnonzero(~rows["server"])
        due = all_of_them | (now_ns - rows["end_ns"][server] >= SETTLE_NS)
        found = self._join(server, client, due, now_ns) if len(client) and len(server) else None
        self._tell(server[due])
        old = client[~rows["gone"][client] & (all_of_them | (now_ns - rows["end_ns"][client] > _WAIT_NS))]
        self._end(old, now_ns)
        self._room.compact()
        return found

    def _join(
        self, server: NDArray[np.intp], client: NDArray[np.intp], due: NDArray[np.bool_], now_ns: int
    ) -> Called | None:
        """Settle the client halves in server halves that are `due`."""
        outer, inner = self._room.intervals(server), self._room.intervals(client)
        nested = nest(outer, inner)
        inside = nested.within >= 0
        if not inside.any():
            return None
        served = np.maximum(nested.within, 0)
        if (left_out := self._processes.sampled_out(kinds(self._room.rows["tgid"][server]), now_ns)).any():
            self._share(outer.of[overlapping_others(outer) & left_out], now_ns)
        excluded = self._room.rows["excluded"][server][served]
        shared = np.isin(inner.of, np.fromiter(self._shared, np.uint64, len(self._shared)))
        known = {
            "": ~inside | ~(nested.several | due[served]),
            "ambiguous": nested.several | shared | np.isin(excluded, AMBIGUOUS),
            "no_exchange": excluded != Excluded.NONE,
        }
        outcome = np.select(list(known.values()), list(known), "joined")
        for name in _OUTCOMES:
            self._outcomes[name] += int(np.count_nonzero(outcome == name))
        self._room.rows["gone"][client[outcome != ""]] = True
        self._room.rows["inside"][client[inside]] = True
        joined = np.flatnonzero(outcome == "joined")
        return self._called(server, served[joined], client[joined]) if len(joined) else None

    def _called(self, server: NDArray[np.intp], served: NDArray[np.intp], client: NDArray[np.intp]) -> Called:
        order = np.lexsort((self._room.rows["begin_ns"][client], served))
        client, (places, of) = client[order], np.unique(served[order], return_inverse=True)
        whom = server[places]
        calls = replace(self._room.intervals(client), of=of.astype(np.uint64))
        return Called(server=self._room.halves(whom), client=self._room.halves(client), of=of, new_ns=covered_ns(calls))

    def _tell(self, server: NDArray[np.intp]) -> None:
        """Let go of server halves, and remember until when their threads were told of."""
        server = server[np.argsort(self._room.rows["end_ns"][server], kind="stable")]
        rows = self._room.rows.take(server)
        told = self._told[(slot := _slot(rows["thread"]))]
        rows["end_ns"] = np.where(
            told["thread"] == rows["thread"], np.maximum(told["end_ns"], rows["end_ns"]), rows["end_ns"]
        )
        self._told["thread"][slot], self._told["end_ns"][slot] = rows["thread"], rows["end_ns"]
        self._room.rows["gone"][server] = True

    def _share(self, threads: NDArray[np.uint64], now_ns: int) -> None:
        """Remember threads that serve several at a time, of which not all may be here."""
        for thread in set(threads.tolist()):
            self._shared[thread] = now_ns + _SHARED_NS
        for thread in [one for one, until_ns in self._shared.items() if until_ns < now_ns]:
            del self._shared[thread]
        for thread in list(self._shared)[:-_SHARED]:
            del self._shared[thread]

    def _known_thread(self, records: NDArray[np.void]) -> NDArray[np.bool_]:
        """Return which of these halves one thread read and wrote; count the client halves that several did."""
        server = records["role"] == Role.SERVER
        known: NDArray[np.bool_] = (records["reader_tid"] == records["writer_tid"]) & (records["reader_tid"] != 0)
        known &= (records["read_last_ns"] != 0) & (records["send_start_ns"] != 0)
        self._outcomes["several_threads"] += int(np.count_nonzero(~known & ~server))
        return known

    def _take(self, some: Halves, which: NDArray[np.bool_], now_ns: int) -> None:
        """Let these halves wait, of which one thread each read and wrote."""
        at = np.flatnonzero(which)
        at = at[self._known_thread(some.rec.take(at))] if len(at) else at
        for first in range(0, len(at), GROWN):
            self._append(some, at[first : first + GROWN], now_ns)

    def _append(self, some: Halves, at: NDArray[np.intp], now_ns: int) -> None:
        rows = self._room.append(some, at)
        server = rows["server"]
        told = self._told[_slot(rows["thread"])]
        late = server & (told["thread"] == rows["thread"]) & (told["end_ns"] > rows["begin_ns"])
        self._share(rows["thread"][late], now_ns)
        self._processes.note_sampled_out(kinds(rows["tgid"][server & (some.adjusted_count[at] > 1)]), now_ns)

    def _end(self, client: NDArray[np.intp], now_ns: int) -> None:
        """Count these client halves as in nobody's `process`, as far as the records tell."""
        left_out = self._processes.sampled_out(kinds(self._room.rows["tgid"][client]), now_ns)
        sampled_out = int(np.count_nonzero(left_out))
        self._outcomes["sampled_out"] += sampled_out
        self._outcomes["no_exchange"] += len(client) - sampled_out
        self._room.rows["gone"][client] = True


# joined: to the exchange in whose `process` it lies; ambiguous: it lies in several, or its thread serves several at a
# time; several_threads: who wrote the request did not read the response; no_exchange: in none that is an RPC;
# sampled_out: in none either, but records of what its process served had been left out. And no_room: of `CallRoom`.
_OUTCOMES = ("joined", "ambiguous", "several_threads", "no_exchange", "sampled_out")


def _slot(thread: NDArray[np.uint64]) -> NDArray[np.intp]:
    return (thread & np.uint64(_TOLD - 1)).astype(np.intp)
