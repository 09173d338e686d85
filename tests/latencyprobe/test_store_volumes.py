"""The store on real volumes that are full or read-only: what it says, what stays readable, and that it recovers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from latencyprobe.errors import StoreError
from latencyprobe.sli import SliRow
from latencyprobe.store import FULL, SqliteStore
from tests.latencyprobe.store_rows import KEY, Clock, add_batch, batch, good, row
from tests.support.volumes import fill, make_room, read_only, volume

pytestmark = pytest.mark.root


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with volume(tmp_path / "volume", "2m") as mounted:
        yield mounted


def many(number: int) -> list[SliRow]:
    return [row(key=KEY._replace(objective=f"o{i}")) for i in range(number)]


def test_full_volume_keeps_what_it_has_takes_nothing_and_goes_on_when_there_is_room(folder: Path) -> None:
    with SqliteStore(folder / "sli.db", clock=Clock()) as store:
        taken = add_batch(store, "n1", batch(0, row()))
        fill(folder)
        with pytest.raises(StoreError, match="free some space") as refused:
            add_batch(store, "n1", batch(taken, *many(5_000)))
        assert refused.value.reason == FULL
        assert good(store) == 1
        make_room(folder)
        store.try_write()
        assert add_batch(store, "n1", batch(taken, row())) == taken + 1
        assert good(store) == 2
        assert add_batch(store, "n1", batch(taken, row())) == taken + 1
        assert good(store) == 2, "sent again it counts once"


def test_store_that_is_begun_on_a_full_volume_says_so(folder: Path) -> None:
    fill(folder)
    with pytest.raises(StoreError) as refused:
        SqliteStore(folder / "sli.db", clock=Clock())
    assert refused.value.reason == FULL
    make_room(folder)
    with SqliteStore(folder / "sli.db", clock=Clock()) as store:
        assert good(store) == 0


@pytest.mark.parametrize("clean", [True, False])
def test_read_only_volume_can_be_read_and_takes_counts_when_it_is_writable_again(folder: Path, clean: bool) -> None:
    path = folder / "sli.db"
    with SqliteStore(path, clock=Clock()) as store:
        store.add([row()])
        copies = {name: (folder / name).read_bytes() for name in ("sli.db", "sli.db-wal")}
    if not clean:  # as a process leaves it that was killed
        for name, content in copies.items():
            (folder / name).write_bytes(content)
    read_only(folder)
    with pytest.raises(StoreError, match="make its volume writable") as refused:
        SqliteStore(path, move_damaged=True, clock=Clock())
    assert refused.value.reason == "StoreFailed"
    if clean:
        with SqliteStore(path, readonly=True, clock=Clock()) as reader:
            assert good(reader) == 1
    read_only(folder, yes=False)
    with SqliteStore(path, clock=Clock()) as store:
        assert good(store) == 1
