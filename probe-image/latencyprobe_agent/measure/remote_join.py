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

from latencyprobe.plan import Ask, ServerHalf, SpanPolicy
from latencyprobe_agent.measure.halves import Halves
from latencyprobe_agent.measure.kept import KEPT, unpack
from latencyprobe_agent.measure.pairing import LocalJoin, Pairs
from latencyprobe_agent.measure.rules import TargetSet
from latencyprobe_agent.measure.sampling import Budget, decide
from latencyprobe_agent.vocabulary import ids
from latencyprobe_agent.vocabulary.records import Outcome, Role

# Questions under way: 165 bytes and one entry of about 300 each, 0.9 MB; at 500 a second each may take 4 s.
_ASKED = 2048
# Keys to be looked for: about 250 bytes each, 1 MB; two callers' nodes may ask for all they have room for.
_PENDING = 4096


class RemoteJoin(NamedTuple):
    """What one turn brought from other nodes. `pairs`: client halves of this node with their server halves; `servers`:
    service name and namespace of these, by the low half of the trace id; `asking`: exchanges (alike) that may still get
    their server half; `answers`: as they came."""

    pairs: Pairs
    servers: Mapping[int, tuple[str, str]]
    asking: frozenset[int]
    answers: Sequence[ServerHalf] = ()


class Question(NamedTuple):
    """A client half whose other half is asked for. `peer`: packed address that it dialled; `span`: it became one."""

    key: str
    peer: bytes
    span: bool
    since_s: float


class Asking:
    """Client halves that ask for their server half. `counts`: questions by what became of them."""

    def __init__(self, *, join_wait_s: float, answer_wait_s: float, per_second: int) -> None:
        self.counts: Counter[str] = Counter()
        self._join_wait_s = join_wait_s
        self._answer_wait_s = answer_wait_s
        self._budget = Budget(per_second)
        self._sets: Mapping[int, TargetSet] = {}
        self._policies: Mapping[int, TargetSet] = {}
        self._join = LocalJoin(_ASKED)
        self._young: dict[int, Question] = {}  # by the low half of the trace id; their other half may still come here
        self._asked: dict[int, Question] = {}

    @property
    def pending(self) -> frozenset[int]:
        """Exchanges (by the low half of their trace id) that may still get their server half."""
        return frozenset((*self._young, *self._asked))

    def consider(self, halves: Halves, pairs: Pairs, sets: Mapping[int, TargetSet], now_ns: int) -> None:
        """Take in a batch and what was joined on this node: slow and failed client halves without a pair will ask.

        Slow is what is over the smallest threshold of its target set, or is slow as a span. The budget is as large as
        that of spans and drops in the same order, so the halves that become spans are among those that ask.
        """
        self._forget(pairs)
        if sets is not self._sets:
            self._sets, self._policies = sets, {i: replace(one, spans=_policy(one)) for i, one in sets.items()}
        slow = halves.duration_ns > min((one.spans.slower_than_ns for one in self._policies.values()), default=0)
        failed = halves.rec["outcome"] != Outcome.OK
        slow_or_failed = np.flatnonzero((halves.rec["role"] == Role.CLIENT) & halves.counted & (slow | failed))
        some = halves.take(np.setdiff1d(slow_or_failed, pairs.client_at))
        decision = decide(some, self._policies, self._budget, now_ns)
        room = _ASKED - len(self._young) - len(self._asked)
        self.counts["left_out"] += decision.over_budget + max(0, len(decision.index) - room)
        asking = some.take(decision.index[:room])
        self._join.join(asking)
        rows = zip(ids.to_hex(asking.trace_id), asking.trace_id[:, 1].tolist(), asking.sampled.tolist(), strict=True)
        for row, (key, low, why) in enumerate(rows):
            self._young[low] = Question(key, bytes(asking.rec["peer_addr"][row]), why > 0, now_ns / 1e9)

    def due(self, now_s: float) -> list[Question]:
        """Return what is to be asked now, and give up what waited too long for its answer."""
        due = {low: q for low, q in self._young.items() if now_s - q.since_s >= self._join_wait_s}
        self._young = {low: q for low, q in self._young.items() if low not in due}
        over = [low for low, q in self._asked.items() if now_s - q.since_s >= self._answer_wait_s]
        self._end(over, "unanswered")
        self._asked |= due
        self.counts["asked"] += len(due)
        return list(due.values())

    def refused(self, reasons: Mapping[str, str]) -> None:
        """End the questions with these keys, which nobody will be asked for: the reason by key."""
        for key, reason in reasons.items():
            self._end([ids.low_of(key)], f"refused_{reason}")

    def answered(self, answers: Iterable[ServerHalf]) -> Pairs:
        """Return the pairs that these server halves make."""
        expected = [one for one in {one.key: one for one in answers}.values() if self._is_asked(one.key)]
        pairs = self._join.join(server_halves(expected))
        self._end([ids.low_of(one.key) for one in expected], "joined")
        return pairs

    def _is_asked(self, key: str) -> bool:
        question = self._asked.get(ids.low_of(key))
        return question is not None and question.key == key

    def _forget(self, pairs: Pairs) -> None:
        """Drop the questions of what was joined here."""
        if not len(pairs) or not (self._young or self._asked):
            return
        under_way = np.fromiter([*self._young, *self._asked], np.uint64)
        ids = pairs.client.trace_id
        joined = ids[np.isin(ids[:, 1], under_way)]
        self._join.pull(joined)
        for low in joined[:, 1].tolist():
            self._young.pop(low, None)
            self._asked.pop(low, None)

    def _end(self, lows: Sequence[int], how: str) -> None:
        ended = [question for low in lows if (question := self._asked.pop(low, None))]
        self.counts[how] += len(ended)
        self._join.pull(ids.from_hex([question.key for question in ended]))


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

    def find(self, join: LocalJoin, now_s: float) -> tuple[Halves, NDArray[np.bool_]]:
        """Take the server halves that are pending out of `join`. Return them, and which of them shall become spans."""
        found = join.pull(ids.from_hex(list(self._pending)))
        found = found.take(found.rec["role"] == Role.SERVER)
        spans = np.array([self._pending.pop(key)[0] for key in ids.to_hex(found.trace_id)], np.bool_)
        over = [key for key, (_, until_s) in self._pending.items() if now_s >= until_s]
        for key in over:
            del self._pending[key]
        self.counts["given"] += len(found)
        self.counts["not_found"] += len(over)
        return found, spans & (found.sampled == 0)


def server_halves(answers: Sequence[ServerHalf]) -> Halves:
    """Return halves with what was answered: stages, flags and round trip; no times, as clocks differ."""
    rows = np.zeros(len(answers), KEPT)
    rows["stages"] = np.array([one.stages_ns for one in answers], np.int64).reshape(-1, 4)
    rows["trace_id"] = ids.from_hex([one.key for one in answers])
    found = unpack(rows)
    found.rec["role"] = Role.SERVER
    found.rec["flags"] = [one.flags for one in answers]
    found.rec["srtt_us"] = [one.srtt_us for one in answers]
    return found


def _policy(one: TargetSet) -> SpanPolicy:
    return with_fields(one.spans, slower_than_ns=min((one.spans.slower_than_ns, *one.thresholds_ns)), ratio=0.0)
