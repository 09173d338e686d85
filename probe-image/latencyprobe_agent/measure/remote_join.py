"""A client's slow or failed exchange gets its server half from the node that has it.

Both sides of it, as arrays and times: `Asking` keeps the client halves with a question under way, `Answering` the keys
that others ask for. What travels between is `latencyprobe.plan.RemoteJoinMessage`. Rules: docs/design/measurement.md,
"Remote join".
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace as with_fields
from numpy.typing import NDArray

from latencyprobe.plan import Ask, ServerHalf, SpanPolicy, UnsentBytes
from latencyprobe_agent.measure import streaming
from latencyprobe_agent.measure.budget import Budget
from latencyprobe_agent.measure.halves import NO_HALVES, Halves, halves
from latencyprobe_agent.measure.pairing import NO_PAIRS, LocalJoin, Pairs
from latencyprobe_agent.measure.rules import TargetSet
from latencyprobe_agent.measure.sampling import decide
from latencyprobe_agent.vocabulary import ids
from latencyprobe_agent.vocabulary.records import EXCHANGE, SAMPLING_LEVEL_SHIFT, Role

# Questions under way: 242 bytes and two entries of about 200 each, 1.3 MB; at 500 a second each may take 4 s.
_ASKED = 2048
# Keys to be looked for: about 250 bytes each, 1 MB; two callers' nodes may ask for all they have room for.
_PENDING = 4096
# Of a half that another node answers: at 5,000 records a second its kernel would end 5e9 exchanges a second.
_HIGHEST_LEVEL = 20


class RemoteJoin(NamedTuple):
    """What one turn brought from other nodes. `pairs`: client halves of this node with their server halves; `servers`:
    service name and namespace of these, by join key; `asking`: exchanges (alike) that may still get their server half;
    `answers`: of these pairs, alike."""

    pairs: Pairs
    servers: Mapping[int, tuple[str, str]]
    asking: frozenset[int]
    answers: Mapping[int, ServerHalf] = {}


class Question(NamedTuple):
    """A client half whose other half is asked for. `key`: its trace id in hex; `peer`: packed address that it dialled;
    `span`: it became one."""

    key: str
    join_key: int
    peer: bytes
    span: bool
    since_s: float


class _Policies(NamedTuple):
    """Of the target sets in force: with which spans policy they ask, and the smallest of their thresholds."""

    sets: Mapping[int, TargetSet]
    asking: Mapping[int, TargetSet]
    slow_ns: int

    @classmethod
    def of(cls, sets: Mapping[int, TargetSet]) -> "_Policies":
        asking = {i: replace(one, spans=_policy(one)) for i, one in sets.items()}
        return cls(sets, asking, min((one.spans.slower_than_ns for one in asking.values()), default=0))


class Asking:
    """Client halves that ask for their server half. `counts`: questions by what became of them."""

    def __init__(self, *, join_wait_s: float, answer_wait_s: float, per_second: int) -> None:
        self.counts: Counter[str] = Counter()
        self._join_wait_s = join_wait_s
        self._answer_wait_s = answer_wait_s
        self._budget = Budget(per_second)
        self._policies = _Policies.of({})
        self._join = LocalJoin(_ASKED)
        self._young: dict[int, Question] = {}  # by join key; their other half may still come here
        self._asked: dict[int, Question] = {}
        self._join_keys: dict[str, int] = {}  # of those asked, by their trace id

    @property
    def pending(self) -> frozenset[int]:
        """Exchanges (by join key) that may still get their server half."""
        return frozenset((*self._young, *self._asked))

    def consider(
        self, halves: Halves, pairs: Pairs, sets: Mapping[int, TargetSet], pair_key: bytes, now_ns: int
    ) -> None:
        """Take in a batch and what was joined on this node: slow and failed client halves without a pair will ask.

        Slow is what is over the smallest threshold of its target set, or is slow as a span. The budget is as large as
        that of spans and drops in the same order, so the halves that become spans are among those that ask.
        """
        self._forget(pairs)
        if sets is not self._policies.sets:
            self._policies = _Policies.of(sets)
        asks = (halves.judged_ns > self._policies.slow_ns) | streaming.failed(halves.rec)
        if not asks.any():
            return
        asks &= (halves.rec["role"] == Role.CLIENT) & halves.shown
        asks[pairs.client_at[pairs.client_at >= 0]] = False
        some = halves.take(asks)
        if not len(some):
            return
        decision = decide(some, self._policies.asking, self._budget, now_ns)
        room = _ASKED - len(self._young) - len(self._asked)
        self.counts["left_out"] += decision.over_budget + max(0, len(decision.index) - room)
        asking = some.take(decision.index[:room])
        self._join.join(asking)
        hexes = ids.to_hex(asking.trace_ids(pair_key))
        rows = zip(hexes, asking.join_key.tolist(), asking.sampled.tolist(), strict=True)
        for row, (key, join_key, why) in enumerate(rows):
            peer = bytes(asking.rec["peer_addr"][row])
            self._young[join_key] = Question(key, join_key, peer, why > 0, now_ns / 1e9)

    def due(self, now_s: float) -> list[Question]:
        """Return what is to be asked now, and give up what waited too long for its answer."""
        due = {at: q for at, q in self._young.items() if now_s - q.since_s >= self._join_wait_s}
        self._young = {at: q for at, q in self._young.items() if at not in due}
        over = [q for q in self._asked.values() if now_s - q.since_s >= self._answer_wait_s]
        self._end(over, "unanswered")
        self._asked |= due
        self._join_keys |= {q.key: at for at, q in due.items()}
        self.counts["asked"] += len(due)
        return list(due.values())

    def refused(self, reasons: Mapping[str, str]) -> None:
        """End the questions with these keys, which nobody will be asked for: the reason by key."""
        for key, reason in reasons.items():
            if key in self._join_keys:
                self._end([self._asked[self._join_keys[key]]], f"refused_{reason}")

    def answered(self, answers: Iterable[ServerHalf]) -> tuple[Pairs, dict[int, ServerHalf]]:
        """Return the pairs that these server halves make, and by join key the halves of these."""
        expected = {self._join_keys[one.key]: _possible(one) for one in answers if one.key in self._join_keys}
        if not expected:
            return NO_PAIRS, expected
        pairs = self._join.join(server_halves(expected))
        joined = pairs.of_clients(_join_key).tolist()
        self._end([self._asked[join_key] for join_key in joined], "joined")
        self._end([self._asked[join_key] for join_key in expected.keys() - joined], "ambiguous")
        return pairs, {join_key: expected[join_key] for join_key in joined}

    def _forget(self, pairs: Pairs) -> None:
        """Drop the questions of what was joined here."""
        if not len(pairs) or not (self._young or self._asked):
            return
        under_way = np.fromiter([*self._young, *self._asked], np.uint64)
        join_key = pairs.of_clients(_join_key)
        joined = join_key[np.isin(join_key, under_way)]
        self._join.pull(joined)
        for join_key in joined.tolist():
            self._young.pop(join_key, None)
            if question := self._asked.pop(join_key, None):
                del self._join_keys[question.key]

    def _end(self, questions: Sequence[Question], how: str) -> None:
        if not questions:
            return
        for question in questions:
            del self._asked[question.join_key], self._join_keys[question.key]
        self.counts[how] += len(questions)
        self._join.pull(np.array([question.join_key for question in questions], np.uint64))


class Found(NamedTuple):
    """Server halves that other nodes asked for. `keys`: their trace ids in hex; `spans`: bool[n], they shall become
    spans."""

    halves: Halves
    keys: Sequence[str]
    spans: NDArray[np.bool_]


class Answering:
    """Keys that other nodes ask for, kept for `keep_s`: a half may end here a little later than its client's there."""

    def __init__(self, *, keep_s: float) -> None:
        self.counts: Counter[str] = Counter()
        self._keep_s = keep_s
        self._pending: dict[str, tuple[bool, float]] = {}  # whether it shall become a span, until when

    def ask(self, asks: Iterable[Ask], now_s: float) -> None:
        """Look for these keys from now on."""
        for one in asks:
            room = max(0, _PENDING - len(self._pending))
            self.counts["too_many"] += len(one.keys[room:])
            self._pending.update(dict.fromkeys(one.keys[:room], (one.spans, now_s + self._keep_s)))

    def find(self, join: LocalJoin, pair_key: bytes, now_s: float) -> Found:
        """Take the server halves that are pending out of `join`."""
        if not self._pending:
            return _NOT_ASKED
        found, trace_id = join.pull_servers(ids.from_hex(list(self._pending)), pair_key)
        keys = ids.to_hex(trace_id)
        spans = np.array([self._pending.pop(key)[0] for key in keys], np.bool_)
        over = [key for key, (_, until_s) in self._pending.items() if now_s >= until_s]
        for key in over:
            del self._pending[key]
        self.counts["given"] += len(found)
        self.counts["not_found"] += len(over)
        return Found(found, keys, spans & (found.sampled == 0))


def _possible(half: ServerHalf) -> ServerHalf:
    """Return a half that stands for no more exchanges than can be: who answers it is believed no further."""
    if half.flags >> SAMPLING_LEVEL_SHIFT <= _HIGHEST_LEVEL:
        return half
    below = half.flags & ((1 << SAMPLING_LEVEL_SHIFT) - 1)
    return with_fields(half, flags=_HIGHEST_LEVEL << SAMPLING_LEVEL_SHIFT | below)


def server_halves(answers: Mapping[int, ServerHalf]) -> Halves:
    """Return halves with what was answered, by join key: stages, flags, round trip and what was held; no times,
    as clocks differ."""
    records = np.zeros(len(answers), EXCHANGE)
    records["role"] = Role.SERVER
    records["flags"] = [one.flags for one in answers.values()]
    records["srtt_us"] = [one.srtt_us for one in answers.values()]
    held = [one.unsent or _NOTHING_HELD for one in answers.values()]
    records["unsent_reason"] = [one.reason for one in held]
    records["unsent_bytes"] = [one.size for one in held]
    records["held_ns"] = [one.held_ns for one in held]
    records["held_bound"] = [one.bound for one in held]
    stages = np.array([one.stages_ns for one in answers.values()], np.int64).reshape(-1, 4)
    return replace(
        halves(records),
        end_ns=stages.sum(axis=1),
        duration_ns=stages.sum(axis=1),
        stages=stages,
        join_key=np.array(list(answers), np.uint64),
    )


def _join_key(some: Halves) -> NDArray[np.uint64]:
    return some.join_key


_NOTHING_HELD = UnsentBytes(reason=0, size=0, held_ns=0)
_NOT_ASKED = Found(NO_HALVES, (), np.zeros(0, np.bool_))


def _policy(one: TargetSet) -> SpanPolicy:
    return with_fields(one.spans, slower_than_ns=min((one.spans.slower_than_ns, *one.thresholds_ns)), ratio=0.0)
