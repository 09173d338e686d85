"""What the join of evidence found: the records of each signal, and the exchanges that they explain."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latencyprobe_agent.signals.evidence import Evidence, Explains

HOLD_NS = 1_000_000_000  # a response that was not acknowledged when its half ended may be sent again this much later


@dataclass(frozen=True)
class Joined:
    """Evidence of one signal and the half that each record explains: RECENT_HALF[n].

    `wait_ns`: i64[n], since the same had last been done (`Explains.waits`), an upper bound of what the record cost, or
    how long it lasted within the exchange (`Explains.lasted`);
    `new_ns`: i64[n], the part of it that no earlier record of that exchange had covered. `first`: bool[n], no record of
    this signal was joined to that exchange before.
    """

    evidence: Evidence
    half: NDArray[np.void]
    wait_ns: NDArray[np.int64]
    new_ns: NDArray[np.int64]
    first: NDArray[np.bool_]


@dataclass(frozen=True)
class Shared:
    """Client halves, RECENT_HALF[n], whose server half lost `new_ns` (i64[n]); `first` as in `Joined`. They have the
    adjusted count of the pair."""

    half: NDArray[np.void]
    new_ns: NDArray[np.int64]
    first: NDArray[np.bool_]


class EvidenceBatch(NamedTuple):
    """What one drain of a signal (its `name`) brought. `records`: all that were recorded, some join later or never;
    `joined`: those that explain an exchange by now, of earlier drains too; `shared`: client halves that waited for what
    their server half lost."""

    name: str
    explains: Explains
    records: Evidence
    joined: Joined | None
    shared: Shared | None
