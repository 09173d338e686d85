"""Halves that are kept for later, in half the room: what a pair, a span and an SLI row need of them.

`pack()` makes rows of KEPT of Halves, `unpack()` Halves of them; of the records only these fields come back, the rest
is 0.
"""

import numpy as np
from numpy.typing import NDArray

from latencyprobe_agent.measure.halves import Halves
from latencyprobe_agent.vocabulary.records import EXCHANGE

# Fields that lie side by side travel as one: first and last of each run. Field by field it takes twice the time.
_RUNS = (
    ("cgroup_id", "cgroup_id"),
    ("request_offset", "flags"),
    ("local_port", "excluded"),
)


def _runs() -> dict[str, tuple[int, int]]:
    """Return offset and length in EXCHANGE of each run, by its first field."""
    fields = EXCHANGE.fields
    assert fields is not None
    ends = {first: fields[last][1] + fields[last][0].itemsize for first, last in _RUNS}
    return {first: (fields[first][1], end - fields[first][1]) for first, end in ends.items()}


_OF_RECORD = np.dtype(
    {
        "names": list(_runs()),
        "formats": [f"V{length}" for _, length in _runs().values()],
        "offsets": [offset for offset, _ in _runs().values()],
        "itemsize": EXCHANGE.itemsize,
    }
)
_OF_HALF = {"start_ns": "i8", "stages": "4i8", "join_key": "u8", "sampled": "u1"}
KEPT = np.dtype([*((first, f"V{length}") for first, (_, length) in _runs().items()), *_OF_HALF.items()])


def pack(halves: Halves) -> NDArray[np.void]:
    """Return KEPT[n] of n halves that are SLI events."""
    rows = np.empty(len(halves), KEPT)
    for run in _runs():
        rows[run] = halves.rec.view(_OF_RECORD)[run]
    for name in _OF_HALF:
        rows[name] = getattr(halves, name)
    return rows


def unpack(rows: NDArray[np.void]) -> Halves:
    """Return the halves that were packed."""
    record = np.zeros(len(rows), EXCHANGE)
    for run in _runs():
        record.view(_OF_RECORD)[run] = rows[run]
    start_ns, stages, join_key = (np.ascontiguousarray(rows[name]) for name in ("start_ns", "stages", "join_key"))
    duration_ns = stages.sum(axis=1)
    return Halves(
        rec=record,
        start_ns=start_ns,
        end_ns=start_ns + duration_ns,
        duration_ns=duration_ns,
        stages=stages,
        dominant=stages.argmax(axis=1).astype(np.uint8),
        join_key=join_key,
        counted=np.ones(len(rows), np.bool_),
        sampled=rows["sampled"].copy(),
    )
