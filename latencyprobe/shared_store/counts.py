"""What evaluation and reports ask of a store, answered by a server that has the agents' metrics."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from latencyprobe import exclusions
from latencyprobe.errors import StoreError
from latencyprobe.rules import counters
from latencyprobe.shared_store import questions, tallies
from latencyprobe.shared_store.answers import Series
from latencyprobe.shared_store.client import FAILED, Client
from latencyprobe.shared_store.questions import Question
from latencyprobe.shared_store.tallies import Counted, Identity, Place
from latencyprobe.sli import Coverage, SliRow
from latencyprobe.slo.evaluate import Events
from latencyprobe.slo.objective import ObjectiveKey
from latencyprobe.slo.windows import DAY_S, HOUR_S, MINUTE_S
from latencyprobe.store.levels import Horizons

BUDGET_S = 45.0  # of all questions of one evaluation: there is another one each minute
_BACK_S = 90 * DAY_S  # the longest window
_STEP_S = 6 * HOUR_S

# What metrics do not carry, by the fields of a Result (report/model.py).
NOT_IN_METRICS = (
    *("badByStage", "causes", "coverage.gaps", "coverage.joined", "coverage.lost", "coverage.recordsLost"),
    *("coverage.sampledOut", "evidence", "pressure", "slowest", "topPeers", "waitedFor"),
)
_QUANTILES = "quantiles"
T = TypeVar("T")


class PrometheusCounts:
    """Counts of a shared store for one evaluation: what all objectives of a namespace have in a window is asked once.

    `since`: what is known from earlier ones of when series began. Raises StoreError: with the reason `FAILED` where the
    server cannot be used, without one where an answer is none that we know.
    """

    def __init__(
        self,
        client: Client,
        since: dict[ObjectiveKey, int] | None = None,
        *,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._since = {} if since is None else since
        self._clock = clock
        self._steady = steady
        self._until_s = steady() + BUDGET_S
        self._known: dict[tuple[object, ...], Any] = {}

    def since(self, key: ObjectiveKey) -> int | None:
        """Return when a series has its first sample, to the minute, at most 90 days ago; `None` without any."""
        last = int(self._clock())
        if self._since.get(key, last + 1) > last:  # in the future, where our clock was ahead
            first = self._first(key, last - _BACK_S, last, _STEP_S)
            if first is not None and first > last - _BACK_S:
                first = self._first(key, first - _STEP_S, first, MINUTE_S)
            if first is None:
                return None
            self._since[key] = first
        return self._since[key]

    def read(self, key: ObjectiveKey, since: int, until: int, *, exemplars: bool = True) -> SliRow:
        """Return what metrics carry of a window (Unix s): events, their durations, and turns that are none."""
        counted = self._counted(key.namespace, since, until)
        identity = Identity.of(key)
        if identity not in counted:
            return SliRow(*key, minute=since)
        place, events = Place(key.probe, counted[identity].target, identity.perspective), counted[identity].events
        reasons = self._exclusions(key.namespace, since, until).get(place, {})
        ambiguous = sum(n for reason, n in reasons.items() if _ambiguous(reason))
        excluded = sum(reasons.values()) - ambiguous
        return SliRow(
            *key,
            minute=since,
            good=events.good,
            bad=events.bad,
            histogram=self._histograms(key.namespace, identity.perspective, since, until).get(place, {}),
            coverage=Coverage(events.total + ambiguous + excluded, ambiguous, excluded),
            exclusions=reasons,
        )

    def events(self, key: ObjectiveKey, since: int, until: int) -> Events:
        """Return the good and bad events of a window."""
        counted = self._counted(key.namespace, since, until).get(Identity.of(key))
        return counted.events if counted else Events(0, 0)

    def by_peer(self, key: ObjectiveKey, since: int, until: int) -> None:
        """Return nothing: metrics know no peers of the last minutes."""

    def events_by_step(self, key: ObjectiveKey, since: int, until: int, step_s: int) -> list[Events]:
        """Return the same step by step, from the start of the window to its last step with counts."""
        asked = [questions.by_step(key.namespace, since, until - 1, step_s)]
        found = self._once(("steps", key.namespace, since, until, step_s), lambda: tallies.events(self._answers(asked)))
        counted = found.get(Identity.of(key))
        if counted is None or not counted.by_moment:
            return []
        last = max(counted.by_moment)
        return [counted.by_moment.get(at, Events(0, 0)) for at in range(since + step_s, last + 1, step_s)]

    def horizons(self) -> Horizons:
        """Return that it tells by the minute of all that it holds."""
        return Horizons()

    def why_none(self, key: ObjectiveKey, since: int, until: int) -> str:
        """Return why events of a window may be missing where the server has none of the whole namespace."""
        if self._counted(key.namespace, since, until):
            return ""
        return (
            f"{self._client.url}: no {counters.EVENTS} of namespace {key.namespace} in this window: no traffic "
            "yet, or the agents' metrics (otlp.endpoint) do not arrive there, or not under these names"
        )

    def untold(self, key: ObjectiveKey, since: int, until: int) -> tuple[str, ...]:
        """Return what of a Result this store does not know of a window."""
        row = self.read(key, since, until)
        return NOT_IN_METRICS if row.histogram or not row.good + row.bad else (*NOT_IN_METRICS, _QUANTILES)

    def _counted(self, namespace: str, since: int, until: int) -> dict[Identity, Counted]:
        asked = questions.events(namespace, since, until - 1)
        return self._once(("events", namespace, since, until), lambda: tallies.events(self._answers(asked)))

    def _exclusions(self, namespace: str, since: int, until: int) -> dict[Place, dict[str, int]]:
        asked = questions.excluded(namespace, since, until - 1)
        return self._once(("excluded", namespace, since, until), lambda: tallies.exclusions(self._answers(asked)))

    def _histograms(self, namespace: str, perspective: str, since: int, until: int) -> dict[Place, dict[int, int]]:
        def found() -> dict[Place, dict[int, int]]:
            for ask in (questions.durations, questions.ranges):
                answers = self._answers(ask(namespace, perspective, since, until - 1))
                if durations := tallies.histograms(answers, perspective):
                    return durations
            return {}

        return self._once(("durations", namespace, perspective, since, until), found)

    def _first(self, key: ObjectiveKey, first: int, last: int, step_s: int) -> int | None:
        found = self._answers([questions.present(key, first, last, step_s)])
        return min((int(at) for series in found for at, _ in series.points), default=None)

    def _answers(self, asked: Iterable[Question]) -> Iterator[Series]:
        for question in asked:
            if self._steady() > self._until_s:
                problem = f"too slow: the questions of one evaluation took over {BUDGET_S:g} s: give it more CPU"
                raise StoreError(f"{self._client.url}: {problem}", FAILED)
            if question.first == question.last:
                yield from self._client.at(question.expression, question.last)
            else:
                yield from self._client.over(*question)

    def _once(self, what: tuple[object, ...], found: Callable[[], T]) -> T:
        if what not in self._known:
            try:
                self._known[what] = found()
            except ValueError as error:
                raise StoreError(f"{self._client.url}: answers {error}: look at {counters.EVENTS} there") from error
        known: T = self._known[what]
        return known


def _ambiguous(reason: str) -> bool:
    return reason not in exclusions.BY_NAME or exclusions.BY_NAME[reason].ambiguous
