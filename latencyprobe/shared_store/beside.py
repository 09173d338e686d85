"""Counts of a shared store, and beside them what metrics do not carry, from a store of our own.

What judges an objective comes from the shared store alone. Stages, evidence and coverage explain it, so they are of the
same events or absent: where our own store has seen less of the window, or cannot be read, the report says so.
"""

from fractions import Fraction

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
        self._rows: dict[tuple[ObjectiveKey, int, int], SliRow | None] = {}

    def since(self, key: ObjectiveKey) -> int | None:
        """Return the first minute of a series in the shared store."""
        return self._shared.since(key)

    def events(self, key: ObjectiveKey, since: int, until: int) -> Events:
        """Return the good and bad events of a window in the shared store."""
        return self._shared.events(key, since, until)

    def read(self, key: ObjectiveKey, since: int, until: int) -> SliRow:
        """Return what the shared store has of a window, explained by our own."""
        row = self._shared.read(key, since, until)
        own = self._explains(key, since, until, row)
        if own is None:
            return row
        return replace(own, minute=since, good=row.good, bad=row.bad, histogram=row.histogram or own.histogram)

    def events_by_step(self, key: ObjectiveKey, since: int, until: int, step_s: int) -> list[Events]:
        """Return the same step by step."""
        return self._shared.events_by_step(key, since, until, step_s)

    def horizons(self) -> Horizons:
        """Return how finely the shared store tells."""
        return self._shared.horizons()

    def untold(self, key: ObjectiveKey, since: int, until: int) -> tuple[str, ...]:
        """Return what of a Result neither knows."""
        row = self._shared.read(key, since, until)
        return () if self._explains(key, since, until, row) else self._shared.untold(key, since, until)

    def _explains(self, key: ObjectiveKey, since: int, until: int, row: SliRow) -> SliRow | None:
        """Return our own row if it is of the same events."""
        at = (key, since, until)
        if at not in self._rows:
            self._rows[at] = self._own_row(*at)
        own = self._rows[at]
        if own is None:
            return None
        ours, all_ = own.good + own.bad, row.good + row.bad
        return own if ours >= COMPLETE_FROM * all_ and all_ >= COMPLETE_FROM * Fraction(ours) else None

    def _own_row(self, key: ObjectiveKey, since: int, until: int) -> SliRow | None:
        try:
            return self._own.read(key, since, until) if self._own else None
        except StoreError:
            return None
