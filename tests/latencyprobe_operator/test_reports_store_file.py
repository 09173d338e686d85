"""What is tried to make a store work again, and in which order."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from latencyprobe.errors import StoreError
from latencyprobe.sli import Coverage, SliBatch, SliRow
from latencyprobe.slo.objective import ObjectiveKey, objectives
from latencyprobe.slo.windows import DAY_S
from latencyprobe.store import SqliteStore
from latencyprobe_operator.reports.store_file import StoreFile
from tests.latencyprobe_operator import conftest
from tests.support.damage import damaged
from tests.support.fuzz import seeded


class Opening:
    """Opens the store at a path; keeps how it was asked to. `error`: raised instead."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.asked: list[dict[str, Any]] = []
        self.error: StoreError | None = None

    def __call__(self, **how: Any) -> SqliteStore:
        self.asked.append(how)
        if self.error is not None:
            raise self.error
        return SqliteStore(self.path, **how)


@pytest.fixture
def opening(tmp_path: Path) -> Opening:
    return Opening(tmp_path / "sli.db")


def test_full_store_stays_open_and_is_tried_and_a_suspected_one_is_looked_at_closely(opening: Opening) -> None:
    file = StoreFile(opening)
    assert file.mend("") is None
    first = file.opened
    assert file.mend("StoreFull") is None
    assert (file.opened, opening.asked) == (first, [{}])
    assert file.mend("StoreFailed") is None
    assert file.mend("StoreDamaged") is None
    assert opening.asked == [{}, {}, {"thorough": True}]
    file.close()
    SqliteStore(opening.path).close()


def test_one_that_cannot_be_written_is_read_and_one_that_cannot_be_read_is_not_there(opening: Opening) -> None:
    SqliteStore(opening.path).close()
    to_read = Opening(opening.path)
    file = StoreFile(opening, lambda: to_read(readonly=True))
    opening.error = StoreError("the volume is read-only", "StoreFailed")
    assert file.mend("") is opening.error
    assert file.opened is not None
    to_read.error = StoreError("so it cannot be read either", "StoreFailed")
    assert file.mend("StoreFull") is opening.error, "one that was opened to read cannot tell whether there is room"
    assert file.opened is None
    opening.error = None
    assert file.mend("StoreFailed") is None
    assert file.opened is not None
    file.close()


NOW = 20_000 * DAY_S
PROBE = conftest.probe()
(OBJECTIVE,) = objectives(PROBE)
KEYS = (OBJECTIVE.key, OBJECTIVE.key._replace(objective="other"))


def row(key: ObjectiveKey, minute: int = NOW) -> SliRow:
    coverage = Coverage(6, measured_ms=60_000, expected_ms=60_000)
    return SliRow(*key, minute, good=5, bad=1, coverage=coverage, histogram={3: 4, 9: 2}, peers={"shop/web": 1})


def filled(path: Path) -> dict[str, bytes]:
    """The store's file, and the same with its log as a killed process leaves it, by their ends."""
    with SqliteStore(path, clock=lambda: NOW) as store:
        store.define(PROBE.namespace, PROBE.name, [OBJECTIVE])
        for minute in range(NOW - 1800, NOW, 60):
            store.add([row(key, minute) for key in KEYS])
        store.add_batches([("n1", SliBatch("i1", 1, (row(KEYS[0]),)))])
        store.ask({"n1": {KEYS[0]: NOW - 1000}})
        log = path.with_name(f"{path.name}-wal").read_bytes()
        begun = path.read_bytes()
    return {"": path.read_bytes(), "begun": begun, "-wal": log}


def all_calls(store: SqliteStore) -> Iterator[Callable[[], object]]:
    """What the operator asks of a store; at last what is stored must be there."""
    key, day = KEYS[0], (NOW - DAY_S, NOW + 60)
    yield store.objectives
    yield lambda: store.define(PROBE.namespace, PROBE.name, [OBJECTIVE])
    yield store.asked
    yield lambda: store.ask({"n2": {key: NOW}})
    yield lambda: store.unask([("n1", key)])
    yield lambda: store.expect([(KEYS, NOW - 60, 60_000)])
    yield lambda: store.add_batches([("n1", SliBatch("i1", 2, (row(key),))), ("n2", SliBatch("i2", 1, (row(key),)))])
    yield store.settle
    yield lambda: store.read(key, *day)
    yield lambda: store.events(key, *day)
    yield lambda: store.events_by_step(key, *day, 3600)
    yield lambda: store.objectives_at(NOW)
    yield store.horizons
    yield lambda: store.compact(NOW)
    yield store.try_write


@pytest.mark.long
def test_however_a_file_is_damaged_it_is_used_moved_aside_or_told_of_and_nothing_else_is_raised(tmp_path: Path) -> None:
    """`FLIPS=14000` in the environment: as many."""
    cases, fuzz = seeded("FLIPS", 300)
    whole, path, ends = filled(tmp_path / "whole.db"), tmp_path / "sli.db", Counter[str]()
    files = [{"": one} for one in damaged(whole[""], cases, fuzz)]
    files += [{"": whole["begun"], "-wal": one} for one in damaged(whole["-wal"], cases // 4, fuzz)]
    files += [{"": one, "-wal": whole["-wal"]} for one in damaged(whole["begun"], cases // 4, fuzz)]
    for content in files:
        for old in tmp_path.glob("sli.db*"):
            old.unlink()
        for end, data in content.items():
            path.with_name(path.name + end).write_bytes(data)
        ends[used(path)] += 1
    print(dict(ends))
    assert ends["it works"] > cases / 10
    assert ends["it was moved aside"] > cases / 10
    assert ends.keys() <= {"it works", "it was moved aside", "StoreFailed"}


def used(path: Path) -> str:
    """Open a store as the operator does, and use it; what came of it."""
    file = StoreFile(
        lambda **how: SqliteStore(path, move_damaged=True, clock=lambda: NOW, **how),
        lambda: SqliteStore(path, readonly=True, clock=lambda: NOW),
    )
    reason = ""
    try:
        for _ in range(3):
            error = file.mend(reason) or failed(file)
            if error is None:
                return "it was moved aside" if file.moved else "it works"
            reason = error.reason
        return reason
    finally:
        file.close()


def failed(file: StoreFile) -> StoreError | None:
    """Ask everything of a store; what is wrong with it as a whole."""
    assert file.opened is not None
    for call in all_calls(file.opened):
        try:
            call()
        except StoreError as error:  # of one series alone, it stops nothing
            if error.reason:
                return error
    return None
