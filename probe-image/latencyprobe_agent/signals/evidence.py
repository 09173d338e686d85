"""What every signal of evidence offers: columns for the join, fields for a span event, samples for metrics.

Each module of this room that decodes evidence returns `Evidence` from its `columns()` and builds one `Explains`; the
join (`measure.evidence`), the metrics and the spans work on these alone and know no signal by name.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Attribute = str | int | float | bool


@dataclass(frozen=True)
class Evidence:
    """n records of one signal; `rec["flow"]` is their FLOW_HEADER.

    `seq`, `end_seq`: u32[n], the local side's sent bytes that a record is about; equal where it has no range.
    `before_start`: it is about the beginning of the connection, before its first exchange. `joins`: it can explain an
    exchange; others count in metrics only.
    """

    rec: NDArray[np.void]
    seq: NDArray[np.uint32]
    end_seq: NDArray[np.uint32]
    before_start: NDArray[np.bool_]
    joins: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.rec)

    def take(self, at: NDArray[np.intp] | NDArray[np.bool_]) -> "Evidence":
        """Return the rows of `at` (positions or a mask) as a copy."""
        return Evidence(self.rec[at], self.seq[at], self.end_seq[at], self.before_start[at], self.joins[at])

    @staticmethod
    def concatenate(parts: Sequence["Evidence"]) -> "Evidence":
        """Return the rows of all parts (at least one), in their order."""
        columns = ("rec", "seq", "end_seq", "before_start", "joins")
        return Evidence(*(np.concatenate([getattr(part, name) for part in parts]) for name in columns))


@dataclass(frozen=True)
class Sample:
    """Values of one metric: of rows `rows` of an `Evidence`, one value and one value of each label per row.

    `metric`: its name in vocabulary/conventions.py; `labels`: attribute name → str[m]. Counters add `values` up,
    histograms record them (seconds). `by_peer`: by the service at the other end too, where somebody can name it.
    """

    metric: str
    rows: NDArray[np.intp]
    values: NDArray[Any]
    labels: Mapping[str, NDArray[np.str_]] = field(default_factory=dict)
    by_peer: bool = False


@dataclass(frozen=True)
class Explains:
    """What a signal says of the exchanges that it explains.

    `event`: name of the span event; `fields`: one record → attributes of that event; `attributes`: the joined records
    of one exchange → attributes of its span; `samples`: a batch → values of metrics; `says`: one record → `what`,
    `count` and `wait_ns` of `sli.EvidenceSummary`. `waits`: the join knows how long ago the bytes had last been sent,
    an upper bound of what it cost; the event says so, and `says` does not.
    """

    event: str
    fields: Callable[[np.void], Mapping[str, Attribute]]
    samples: Callable[[Evidence], Sequence[Sample]]
    says: Callable[[np.void], tuple[str, int, int]]
    attributes: Callable[[NDArray[np.void]], Mapping[str, Attribute]] = lambda _: {}
    waits: bool = False
