"""From a batch of records to halves: duration, stages and join key of every exchange, as arrays."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latencyprobe_agent.measure import keys, stages
from latencyprobe_agent.measure.streaming import first_answer_ns, streaming
from latencyprobe_agent.signals.exchanges import columns, place
from latencyprobe_agent.vocabulary.records import EXCHANGE, SAMPLING_LEVEL_SHIFT, ExchangeFlags

WHOLE = np.dtype(f"V{EXCHANGE.itemsize}")  # an EXCHANGE that is moved as it is, not field by field


@dataclass(frozen=True)
class Halves:
    """n halves, row by row. Times in ns of the boot clock.

    `stages`: i64[n, 4], `stages.SERVER` or `stages.CLIENT` by the role, its columns contiguous.
    `join_key`: u64[n], the same for both halves of an exchange; it stands for the exchange in this process.
    `counted`: the exchange is an SLI event (`excluded` is NONE). `sampled`: why it becomes a span, a Reason + 1
    (`measure.sampling`), 0 if it does not.
    """

    rec: NDArray[np.void]
    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    duration_ns: NDArray[np.int64]
    stages: NDArray[np.int64]
    join_key: NDArray[np.uint64]
    counted: NDArray[np.bool_]
    sampled: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.rec)

    @property
    def adjusted_count(self) -> NDArray[np.int64]:
        """i64[n]: how many exchanges each record stands for, its own included: more than 1 where the kernel sampled."""
        return adjusted_count(self.rec["flags"])

    @cached_property
    def dominant(self) -> NDArray[np.uint8]:
        """u8[n]: the index of the longest stage."""
        longest: NDArray[np.uint8] = self.stages.argmax(axis=1).astype(np.uint8)
        return longest

    @cached_property
    def shown(self) -> NDArray[np.bool_]:
        """bool[n]: SLI events and streaming calls: only such become spans and pairs."""
        return self.counted if self.counted.all() else self.counted | streaming(self.rec)

    @property
    def first_answer_ns(self) -> NDArray[np.int64]:
        """i64[n]: of streaming calls, from the first byte of the request to the first of the answer; 0 of others."""
        if self.counted.all() or not (streams := streaming(self.rec)).any():
            return np.zeros(len(self), np.int64)
        return np.where(streams, first_answer_ns(self.rec), 0)

    @property
    def judged_ns(self) -> NDArray[np.int64]:
        """i64[n]: what a threshold judges: the duration; of a streaming call, the time to its first answer."""
        answered_ns = self.first_answer_ns
        return np.where(answered_ns > 0, answered_ns, self.duration_ns) if answered_ns.any() else self.duration_ns

    def trace_ids(self, pair_key: bytes) -> NDArray[np.uint64]:
        """Return u64[n, 2], high and low half: what stands for the exchange outside this process. Dear: of few rows."""
        return keys.trace_ids(place(self.rec), pair_key)

    def take(self, index: NDArray[np.intp] | NDArray[np.bool_]) -> "Halves":
        """Return the rows of `index` (positions or a mask) as a copy."""
        at = np.flatnonzero(index) if index.dtype == np.bool_ else index
        # `take` moves whole records; indexing with an array copies them field by field, at ten times the cost
        return Halves(*(getattr(self, name).T.take(at, axis=-1).T for name in _COLUMNS))

    def put(self, rows: NDArray[np.intp], others: "Halves") -> None:
        """Write other halves over these rows."""
        self.rec.view(WHOLE)[rows] = others.rec.view(WHOLE)
        for name in _COLUMNS[1:]:
            getattr(self, name)[rows] = getattr(others, name)

    @staticmethod
    def concatenate(parts: Sequence["Halves"]) -> "Halves":
        """Return the rows of all parts (at least one), in their order."""
        filled = [part for part in parts if len(part)] or parts[:1]
        if len(filled) == 1:
            return filled[0]
        columns = {name: [getattr(part, name) for part in filled] for name in _COLUMNS}
        records = np.concatenate([record.view(WHOLE) for record in columns.pop("rec")]).view(EXCHANGE)
        whole = {name: np.concatenate([part.T for part in column], axis=-1).T for name, column in columns.items()}
        return Halves(records, **whole)


_COLUMNS = tuple(one.name for one in fields(Halves))


def adjusted_count(flags: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Return i64[n]: how many exchanges records with these flags (u32[n]) stand for, their own included."""
    return np.int64(1) << (flags >> np.uint32(SAMPLING_LEVEL_SHIFT)).astype(np.int64)


class Sleep(NamedTuple):
    """The host slept for `length_ns`, somewhere between two boot times."""

    after_ns: int
    before_ns: int
    length_ns: int


def flag_suspended(some: Halves, sleeps: Collection[Sleep]) -> None:
    """Set SUSPENDED in the records of halves during which the host slept: their durations include that time."""
    oldest_ns = some.start_ns.min(initial=np.iinfo(np.int64).max) if sleeps else 0
    for sleep in sleeps:
        if sleep.before_ns <= oldest_ns:
            continue
        slept = (some.start_ns < sleep.before_ns) & (some.end_ns > sleep.after_ns)
        slept &= some.duration_ns >= sleep.length_ns
        some.rec["flags"][slept] |= np.uint32(ExchangeFlags.SUSPENDED)


def halves(batch: NDArray[np.void]) -> Halves:
    """Measure a batch of EXCHANGE records; `batch` stays as `rec`, with STAGE_OVERLAP set where stamps overlapped."""
    exchanges = columns(batch)
    points, stage_ns, overlap = stages.cut(exchanges.stamps)
    if overlap.any():
        batch["flags"][overlap] |= np.uint32(ExchangeFlags.STAGE_OVERLAP)
    return Halves(
        rec=batch,
        start_ns=points[0],
        end_ns=points[-1],
        duration_ns=points[-1] - points[0],
        stages=stage_ns,
        join_key=keys.join_keys(exchanges.place),
        counted=exchanges.counted,
        sampled=np.zeros(len(batch), np.uint8),
    )


NO_HALVES = halves(np.zeros(0, EXCHANGE))
