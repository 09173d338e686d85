"""benchmarks/made_store.py: what reports are measured with is like what is measured."""

from pathlib import Path

import pytest

from benchmarks import made_store
from benchmarks.reports import NOW, documents
from latencyprobe.slo.windows import MINUTE_S
from latencyprobe.store import SqliteStore


@pytest.mark.slow
def test_made_store_has_every_minute_of_each_objective_and_a_minute_takes_200_bytes_at_most(tmp_path: Path) -> None:
    path = tmp_path / "sli.db"
    made_store.make(path, made_store.WRITTEN + 1, 1, NOW, window="1d")
    rows, size = made_store.bytes_of(path)[MINUTE_S]
    assert 1440 == rows
    assert size / rows <= 200
    with SqliteStore(path, readonly=True) as store:
        (document,) = documents(store)
    assert {1440 * made_store.EVENTS} == {result.events for result in document.results}
    first, copy = (next(one for one in document.results if one.objective == name) for name in ("o0", "o4"))
    assert (first.bad, first.quantiles, first.burn_down) == (copy.bad, copy.quantiles, copy.burn_down)
