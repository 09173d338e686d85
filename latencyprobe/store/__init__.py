"""Where SLI counts live: one small interface, and SQLite behind it; shared_store/ reads them elsewhere."""

from collections.abc import Iterable
from typing import Protocol

from latencyprobe.sli import SliBatch, SliRow
from latencyprobe.slo.evaluate import Events
from latencyprobe.slo.objective import Objective, ObjectiveKey
from latencyprobe.store.levels import Horizons
from latencyprobe.store.opening import DAMAGED, FULL, default_path
from latencyprobe.store.recent import LastMinutes
from latencyprobe.store.sqlite import SqliteStore


class Counts(Protocol):
    """What evaluation and reports ask of a store. Every call raises StoreError when the store cannot be used."""

    def since(self, key: ObjectiveKey) -> int | None:
        """Return the first minute of a series, `None` without counts."""

    def read(self, key: ObjectiveKey, since: int, until: int, *, exemplars: bool = True) -> SliRow:
        """Return the sum of a window; its `minute` is the window's start as it was aligned. `exemplars`: also the
        slowest exchanges and peers."""

    def by_peer(self, key: ObjectiveKey, since: int, until: int) -> LastMinutes | None:
        """Return the figures by peer of the last minutes in a window, `None` where it knows none."""

    def events(self, key: ObjectiveKey, since: int, until: int) -> Events:
        """Return the good and bad events of a window."""

    def events_by_step(self, key: ObjectiveKey, since: int, until: int, step_s: int) -> list[Events]:
        """Return the same step by step, from the start of the window as it is aligned to its last step with counts."""

    def horizons(self) -> Horizons:
        """Return from when on (Unix s) it tells by the minute, by the hour, and at all."""

    def why_none(self, key: ObjectiveKey, since: int, until: int) -> str:
        """Return why events of a window may be missing of which it has none at all; empty where there were none."""

    def untold(self, key: ObjectiveKey, since: int, until: int) -> tuple[str, ...]:
        """Return which fields of a Result (report/model.py) the store does not know of a window."""


class Store(Counts, Protocol):
    """What agent and operator ask of the store that they write, besides."""

    def define(self, namespace: str, probe: str, objectives: Iterable[Objective]) -> None:
        """Keep a LatencyProbe's objectives, and retire those that it no longer has."""

    def objectives(self) -> tuple[Objective, ...]:
        """Return all objectives that are not retired."""

    def add(self, rows: Iterable[SliRow]) -> None:
        """Add counts, all or none."""

    def add_batches(self, batches: Iterable[tuple[str, SliBatch]]) -> list[int]:
        """Add the batches of nodes once each, and return the next sequence number that will be taken from each. What is
        asked of Counts knows them once they are settled."""

    def settle(self) -> None:
        """Let what was added be read, all of it."""

    def expect(self, wanted: Iterable[tuple[Iterable[ObjectiveKey], int, int]]) -> int:
        """Say how much measured time minutes should have: (objectives, minute, ms). Returns of how many it is too late
        to say."""

    def objectives_at(self, at: int) -> tuple[Objective, ...]:
        """Return the objectives that were counted at a moment (Unix s), also such as are retired since."""

    def last(self, namespace: str) -> int | None:
        """Return the last minute that was counted of a namespace's objectives, with RPCs or without."""

    def compact(self, now: int) -> None:
        """Delete what is older than it has to be kept."""


__all__ = ["DAMAGED", "FULL", "Counts", "Horizons", "LastMinutes", "SqliteStore", "Store", "default_path"]
