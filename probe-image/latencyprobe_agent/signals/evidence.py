"""What every signal of evidence offers: keys for the join, fields for a span event, samples for metrics.

Each module of this room that decodes evidence returns `Evidence` from its `columns()` and has one `Explains`; join,
metrics and spans work on these alone and know no signal by name.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latencyprobe_agent.vocabulary.conventions import Attribute, AttributeValue, Event, Metric


@dataclass(frozen=True)
class Evidence:
    """n records of one signal; `rec["flow"]` is their FLOW_HEADER.

    `key`: what the join finds their exchanges by, the `columns` of the signal's own `JoinKey`. `joins`: bool[n], the
    record can explain an exchange; others count in metrics only.
    """

    rec: NDArray[np.void]
    key: NDArray[np.void]
    joins: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.rec)

    def take(self, rows: NDArray[np.intp] | NDArray[np.bool_]) -> "Evidence":
        """Return these rows (positions or a mask) as a copy."""
        at = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        return Evidence(*(getattr(self, column.name).take(at) for column in fields(Evidence)))

    @staticmethod
    def concatenate(parts: Sequence["Evidence"]) -> "Evidence":
        """Return the rows of all parts (at least one), in their order."""
        return Evidence(*(np.concatenate([getattr(part, one.name) for part in parts]) for one in fields(Evidence)))


@dataclass(frozen=True)
class Sample:
    """Values of one metric: of rows `rows` of an `Evidence`, one value and one value of each label per row.

    `labels`: str[m] each. Counters add `values` up, histograms record them (seconds). `by_peer`: by the service at the
    other end too, where somebody can name it.
    """

    metric: Metric
    rows: NDArray[np.intp]
    values: NDArray[Any]
    labels: Mapping[Attribute, NDArray[np.str_]] = field(default_factory=dict)
    by_peer: bool = False


def nothing_counted(keys: NDArray[np.void], gained: NDArray[np.void]) -> Sequence[Sample]:
    """Return no samples: the signal counts nothing in the kernel but the records that it lost."""
    return ()


@dataclass(frozen=True)
class Repeats:
    """What records of a signal do again, so that the join knows how long their exchange had waited for it.

    `same`: keys → [n], equal where two records do the same again; `first_ns`: (RECENT_HALF[n], keys) → i64[n], when it
    was first done as far as the half knows, in ns of the boot clock; 0 where it does not.
    """

    same: Callable[[NDArray[np.void]], NDArray[np.void]]
    first_ns: Callable[[NDArray[np.void], NDArray[np.void]], NDArray[np.int64]]


class Lasted(NamedTuple):
    """How long records lasted within the exchanges that they explain: until when (ns of the boot clock), how long (ns),
    and whether that adds to what is explained: bool[n], false for what another record has told already."""

    until_ns: NDArray[np.int64]
    wait_ns: NDArray[np.int64]
    adds: NDArray[np.bool_]


class Stack(NamedTuple):
    """A stack of a record, innermost first. `whole`: it leads to the thread's first function; of the kernel's, that
    there are no more. `tgid`: whose code it is, 0 for the kernel's, and `taken_ns` (boot time) when it was. `attribute`
    has the names of its functions, `told_whole` that it is whole."""

    attribute: Attribute
    addresses: tuple[int, ...]
    whole: bool
    tgid: int = 0
    taken_ns: int = 0
    told_whole: Attribute | None = None


def all_shown(records: NDArray[np.void], wait_ns: NDArray[np.int64]) -> NDArray[np.intp]:
    """Return all rows: each record is a span event."""
    return np.arange(len(records))


@dataclass(frozen=True)
class Explains:
    """How a signal describes the exchanges that it explains.

    `event`: the span event, None for none; `fields`: one record → attributes of that event; `attributes`: the joined
    records of one exchange → attributes of its span; `samples`: a batch → values of metrics; `describe`: one record and
    what it cost beyond the others (ns, 0 where that is not known) → `what`, `count` and `wait_ns` of each
    `sli.EvidenceSummary` that it makes. `waits`: what a record does again. By it the join knows how long ago that was
    last done: an upper bound of the record's cost, which the event carries. `lasted`: in its place, for what has a
    duration: (RECENT_HALF[n], keys) → `Lasted`. `costs`: the records say themselves what they cost. `before`: records →
    i64[n], ns that the application waited for what they tell before the exchange, in no duration of it; 0 not known.
    `counted`: (COUNTS_KEY[n], EVIDENCE_COUNTS[n] gained) → values of metrics that are exact, rows of these in `rows`.
    `shown`: the joined records of one exchange and their costs → those that become span events, in that order.
    `stacks`: those of one record, which whoever writes the event names. `causes`: joined records, and for how many
    exchanges each stands → where the `process` of these went, ns by cause (latencyprobe/causes.py); of an exchange one
    record alone tells it.
    """

    event: Event | None
    fields: Callable[[np.void], Mapping[Attribute, AttributeValue]]
    samples: Callable[[Evidence], Sequence[Sample]]
    describe: Callable[[np.void, int], Sequence[tuple[str, int, int]]]
    attributes: Callable[[NDArray[np.void]], Mapping[Attribute, AttributeValue]] = lambda _: {}
    waits: Repeats | None = None
    counted: Callable[[NDArray[np.void], NDArray[np.void]], Sequence[Sample]] = nothing_counted
    costs: bool = False
    before: Callable[[NDArray[np.void]], NDArray[np.int64]] | None = None
    lasted: Callable[[NDArray[np.void], NDArray[np.void]], Lasted] | None = None
    shown: Callable[[NDArray[np.void], NDArray[np.int64]], NDArray[np.intp]] = all_shown
    stacks: Callable[[np.void], Sequence[Stack]] = lambda _: ()
    causes: Callable[[NDArray[np.void], NDArray[np.int64]], Mapping[str, int]] = lambda *_: {}

    @property
    def knows_cost(self) -> bool:
        """Whether `Joined.new_ns` is what its records cost."""
        return self.costs or self.waits is not None or self.lasted is not None
