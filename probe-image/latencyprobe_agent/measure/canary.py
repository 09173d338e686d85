"""What an exchange that the agent has with itself shows of the hooks: which of them the kernel does not call. Pure.

Its records are like any other's, of a target set that no plan has. docs/design/measurement.md, "The canary".
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from latencyprobe_agent.measure.rules import MAX_SETS
from latencyprobe_agent.vocabulary.records import ExchangeFlags

CANARY_SET: Final = MAX_SETS + 1  # the last one of the array `target_sets` of bpf/maps.bpf.h
CANARY_GROUP: Final = 2**32 - 1

_STATE = ("state",)
_EVENTS_BY_FLAG: Final = {  # what a record is flagged with where the event did not come
    ExchangeFlags.SEND_APPROX: ("send_end", "send_start"),
    ExchangeFlags.READY_APPROX: ("ready",),
    ExchangeFlags.READ_APPROX: ("read",),
}
ALL_EVENTS: Final = frozenset(_STATE).union(*_EVENTS_BY_FLAG.values())
_ENDS = 2


def silent_events(records: NDArray[np.void]) -> frozenset[str]:
    """Return the events (names as in `Programs.variants`) of which at least one end's record lacks the trace.
    `records`: EXCHANGE[n], those of one connection with one exchange; fewer than both ends' lack all."""
    if len(records) < _ENDS:
        return ALL_EVENTS
    flags = records["flags"]
    silent = [events for flag, events in _EVENTS_BY_FLAG.items() if (flags & flag).any()]
    if not (flags & ExchangeFlags.FRESH).all():
        silent.append(_STATE)
    return frozenset().union(*silent)
