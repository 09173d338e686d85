"""kept_room.py: however full one namespace makes the table of counts, what another's new pods do is in some count."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latencyprobe_agent.kernel import counts
from latencyprobe_agent.kernel.kept_room import KeptRoom
from latencyprobe_agent.kernel.maps import FakeMap
from latencyprobe_agent.vocabulary.records import COUNTS_KEY, COUNTS_SLOT, Role

CPUS = 4
VALUE = np.dtype([("n", "u8")])


class Kernel:
    """The table, with room for `keys`, and how programs count in it (`counts_in` of bpf/maps.bpf.h)."""

    def __init__(self, keys: int = 1024) -> None:
        self.map = FakeMap(VALUE.itemsize, keys * CPUS)
        self.kept = KeptRoom(self.map)  # type: ignore[arg-type]  # a fake
        self.unaccounted = 0

    def count(self, owner: int, target_set: int, cpu: int = 0) -> None:
        for one in (owner, 0):
            slot = np.array(((one, target_set, Role.SERVER), cpu, 0), COUNTS_SLOT).tobytes()
            if self.map.add(slot, bytes(VALUE.itemsize)):
                n = np.frombuffer(self.map.entries[slot], np.uint64) + np.uint64(1)
                self.map.entries[slot] = n.tobytes()
                return
        self.unaccounted += 1

    def want(self, *target_sets: int) -> None:
        self.kept.follow(np.array([(0, number, Role.SERVER) for number in target_sets], COUNTS_KEY))

    def read(self, *, everything: bool = False) -> dict[tuple[int, int], int]:
        """Return what is counted by target set and owner."""
        found: dict[tuple[int, int], int] = {}
        for slot in self.kept.used(self.map.entries.keys(), everything=everything):
            key = np.frombuffer(slot, COUNTS_SLOT)["key"][0]
            at = int(key["target_set"]), int(key["owner"])
            found[at] = found.get(at, 0) + int(np.frombuffer(self.map.entries[slot], np.uint64)[0])
        return found


@pytest.fixture(autouse=True)
def _cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts, "possible_cpus", lambda: CPUS)


def test_a_neighbours_new_pods_are_counted_however_full_one_namespace_makes_the_table() -> None:
    """35 containers with 30 target sets each, and a neighbour whose target comes afterwards."""
    kernel, evil = Kernel(), range(1, 31)
    kernel.want(*evil)
    for number in evil:
        for owner in range(1, 36):
            for cpu in range(CPUS):
                kernel.count(owner, number, cpu)
    kernel.want(*evil, 31)
    for owner in range(100, 120):
        for cpu in range(CPUS):
            kernel.count(owner, 31, cpu)
    assert 0 == kernel.unaccounted
    assert 20 * CPUS == kernel.read()[31, 0]
    assert 30 * 35 * CPUS + 20 * CPUS == sum(kernel.read().values())


def test_what_nobody_has_counted_in_is_not_looked_at_before_the_table_is_full() -> None:
    kernel = Kernel()
    kernel.want(1, 2)
    kernel.count(7, 1)
    assert {(1, 7): 1} == kernel.read()
    assert {(1, 7): 1, (1, 0): 0, (2, 0): 0} == kernel.read(everything=True)
    for owner in range(1, 1025):
        for cpu in range(CPUS):
            kernel.count(owner, 1, cpu)
    assert CPUS * 1024 + 1 == sum(kernel.read().values())


def test_room_of_target_sets_that_are_gone_comes_back_and_none_in_which_somebody_has_counted() -> None:
    kernel = Kernel(keys=64)
    kernel.want(1)
    kept = len(kernel.map.entries)
    for number in range(2, 40):
        kernel.want(number)
        kernel.kept.let_go()
        kernel.kept.let_go()
        assert kept == len(kernel.map.entries)
    for owner in range(1, 100):
        kernel.count(owner, 39)
    kernel.want(40)
    for _ in range(3):
        kernel.kept.let_go()
    assert 99 == sum(kernel.read().values()), "what found no room stays, for its counts grow no more and are told"


def test_what_is_forgotten_is_made_again() -> None:
    kernel = Kernel(keys=64)
    kernel.want(1)
    key = np.array([(0, 1, Role.SERVER)], COUNTS_KEY)
    counts.forget(kernel.map, key)  # type: ignore[arg-type]  # a fake
    kernel.kept.forget(key)
    kernel.want(1)
    assert (1, 0) in kernel.read(everything=True)


def test_a_table_without_room_for_it_keeps_none() -> None:
    kernel = Kernel(keys=1)
    kernel.count(7, 1)
    kernel.count(7, 1, 1)
    kernel.want(1, 2)
    kernel.count(8, 1, 3)
    assert 3 == sum(kernel.read().values()) + kernel.unaccounted


@given(st.lists(st.tuples(st.integers(1, 20), st.integers(1, 3), st.integers(0, CPUS - 1)), max_size=300))
def test_nothing_is_lost_of_target_sets_that_room_is_kept_for(exchanges: list[tuple[int, int, int]]) -> None:
    kernel = Kernel(keys=8)
    kernel.want(1, 2)
    for at, one in enumerate(exchanges):
        if at == len(exchanges) // 2:
            kernel.want(1, 2)
        kernel.count(*one)
    assert len(exchanges) == sum(kernel.read(everything=True).values()) + kernel.unaccounted
    assert kernel.unaccounted <= sum(number == 3 for _, number, _ in exchanges)
