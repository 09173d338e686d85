"""Maps of counts: what every CPU has added is read, however many CPUs there are, and goes with its key."""

from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest

from latencyprobe_agent.kernel import counts
from latencyprobe_agent.measure.counts import added_up
from latencyprobe_agent.vocabulary.records import COUNTS_SLOT, EVIDENCE_COUNTS, EXCHANGE_COUNTS, SHARDS


class Kernel:
    """The map, and how programs add to it."""

    def __init__(self) -> None:
        self.values: dict[bytes, np.ndarray] = {}

    def add(self, cpu: int, owner: int, n: int) -> None:
        slot = np.array(((owner, 1, 2), cpu % SHARDS, 0), COUNTS_SLOT).tobytes()
        self.values.setdefault(slot, np.zeros(1, EVIDENCE_COUNTS))["segs_sent"] += n

    def keys(self) -> Iterator[bytes]:
        yield from self.values
        yield from list(self.values)[:3]  # others came meanwhile

    def lookup(self, slot: bytes, into: memoryview) -> bool:
        into[:] = self.values[slot].tobytes()
        return True

    def delete(self, slot: bytes) -> None:
        self.values.pop(slot, None)


@pytest.mark.parametrize("cpus", [1, 2, 32, 33, 512])
def test_nothing_is_lost_however_many_cpus_there_are_and_room_and_reading_end_at_32(monkeypatch, cpus):
    monkeypatch.setattr(counts, "possible_cpus", lambda: cpus)
    kernel, owners = Kernel(), range(1, 80)
    for cpu in range(cpus):
        for owner in owners:
            kernel.add(cpu, owner, n=owner * 1000 + cpu)

    keys, totals = counts.read(kernel, EVIDENCE_COUNTS, partial(added_up, layout=EVIDENCE_COUNTS))

    assert list(owners) == keys["owner"].tolist()
    assert [cpus * 1000 * owner + sum(range(cpus)) for owner in owners] == totals["segs_sent"].tolist()
    assert 1024 * min(cpus, 32) == counts.entries(EVIDENCE_COUNTS)
    assert min(1024 * min(cpus, 32), 20_480) == counts.entries(EXCHANGE_COUNTS), "of 8 KiB each, which are the agent's"
    assert len(kernel.values) == len(owners) * min(cpus, 32)

    counts.forget(kernel, keys[1:])

    left, _ = counts.read(kernel, EVIDENCE_COUNTS, partial(added_up, layout=EVIDENCE_COUNTS))
    assert [1] == left["owner"].tolist()
    assert len(kernel.values) == min(cpus, 32)
