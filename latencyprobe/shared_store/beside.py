"""Counts of a shared store, and beside them what metrics do not carry, from a store of our own.

What judges an objective comes from the shared store alone. Stages, evidence and coverage explain it, so they are of the
same events or absent: where our own store has seen less of the window, or cannot be read, the report says so.
"""

from msgspec.structs import replace

from latencyprobe.errors import StoreError
from latencyprobe.shared_store.counts import PrometheusCounts
from latencyprobe.sli import SliRow
from latencyprobe.slo.evaluate import COMPLETE_FROM, Events
from latencyprobe.slo.objective import ObjectiveKey
from latencyprobe.store import Counts
from latencyprobe.store.levels import Horizons


class Beside:
    """Counts for a report. `shared`: what counts; `own`: what explains, `None` where there is none."""

    def __init__(self, shared: PrometheusCounts, own: Counts | None) -> None:
        self._shared = shared
        self._own = own
        self._rows: dict[tuple[ObjectiveKey, int, int], tuple[SliRow, bool]] = {}

    def since(self, key: ObjectiveKey) -> int | None:
        """Return the first minute of a series in the shared store."""
        return self._shared.since(key)

    def events(self, key: ObjectiveKey, since: int, until: int) -> Events:
        """Return the good and bad events of a window in the shared store."""
        return self._shared.events(key, since, until)

    def read(self, key: ObjectiveKey, since: int, until: int, *, exemplars: bool = True) -> SliRow:
        """Return what the shared store has of a window, explained by our own, always with exemplars: it is asked once
        for all who ask for it."""
        return self._both(key, since, until)[0]

    def by_peer(self, key: ObjectiveKey, since: int, until: int) -> None:
        """Return nothing: metrics know no peers of the last minutes."""

    def events_by_step(self, key: ObjectiveKey, since: int, until: int, step_s: int) -> list[Events]:
        """Return the same step by step."""
        return self._shared.events_by_step(key, since, until, step_s)

    def horizons(self) -> Horizons:
        """Return how finely the shared store tells."""
        return self._shared.horizons()

    def why_none(self, key: ObjectiveKey, since: int, until: int) -> str:
        """Return why events of a window may be missing in the shared store; where our own has none either, there were
        none."""
        _, explained = self._both(key, since, until)
        return "" if explained else self._shared.why_none(key, since, until)

    def untold(self, key: ObjectiveKey, since: int, until: int) -> tuple[str, ...]:
        """Return what of a Result neither knows."""
        _, explained = self._both(key, since, until)
        return () if explained else self._shared.untold(key, since, until)

    def _both(self, key: ObjectiveKey, since: int, until: int) -> tuple[SliRow, bool]:
        """Return the row of a window, and whether our own store explains it."""
        at = (key, since, until)
        if at not in self._rows:
            self._rows[at] = _explained(self._shared.read(*at), self._own_row(*at))
        return self._rows[at]

    def _own_row(self, key: ObjectiveKey, since: int, until: int) -> SliRow | None:
        try:
            return self._own.read(key, since, until) if self._own else None
        except StoreError:
            return None


def _explained(row: SliRow, own: SliRow | None) -> tuple[SliRow, bool]:
    """Return a row with what our own tells besides, if that is of the same events; and whether it is."""
    counted, ours = row.good + row.bad, own.good + own.bad if own else 0
    if own is None or ours < COMPLETE_FROM * counted or counted < COMPLETE_FROM * ours:
        return row, False
    whole = replace(own, minute=row.minute, good=row.good, bad=row.bad, histogram=row.histogram or own.histogram)
    return whole, True
