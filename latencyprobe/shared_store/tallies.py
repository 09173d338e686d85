"""Answers of a server added up: by objective, by target, by reason. Pure."""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from latencyprobe import slo_events
from latencyprobe.bounds import MAX_SUM
from latencyprobe.shared_store import buckets, questions
from latencyprobe.shared_store.answers import Bucket, Series
from latencyprobe.slo.evaluate import Events
from latencyprobe.slo.objective import ObjectiveKey


class Identity(NamedTuple):
    """An objective as the labels of its namespace's series tell it."""

    probe: str
    objective: str
    definition: str
    perspective: str

    @classmethod
    def of(cls, key: ObjectiveKey) -> "Identity":
        """Return that of a series of counts."""
        return cls(key.probe, key.objective, key.hash, slo_events.perspective(key.perspective))


class Place(NamedTuple):
    """One side of a target, whose turns may count for several objectives."""

    probe: str
    target: str
    perspective: str


class Counted(NamedTuple):
    """The events of an objective by moment (Unix s), and the target that it is of."""

    target: str
    by_moment: dict[int, Events]

    @property
    def events(self) -> Events:
        """All of them."""
        good, bad = (sum(one[i] for one in self.by_moment.values()) for i in (0, 1))
        return Events(good, bad)


def events(found: Iterable[Series]) -> dict[Identity, Counted]:
    """Return the events of each objective. Raises ValueError for a count that cannot be."""
    sums: dict[Identity, dict[int, list[float]]] = {}
    targets: dict[Identity, str] = {}
    outcomes = (slo_events.GOOD, slo_events.BAD)
    for series in found:
        probe, objective, definition, perspective, target, outcome = (
            series.labels.get(name, "")
            for name in (
                *(questions.PROBE, questions.OBJECTIVE, questions.DEFINITION, questions.PERSPECTIVE),
                *(questions.TARGET, questions.OUTCOME),
            )
        )
        identity = Identity(probe, objective, definition, perspective)
        targets[identity] = target
        by_moment = sums.setdefault(identity, {})
        for at, value in series.points if outcome in outcomes else ():
            by_moment.setdefault(int(at), [0.0, 0.0])[outcomes.index(outcome)] += value
    return {
        identity: Counted(targets[identity], {at: Events(whole(g), whole(b)) for at, (g, b) in by_moment.items()})
        for identity, by_moment in sums.items()
    }


def exclusions(found: Iterable[Series]) -> dict[Place, dict[str, int]]:
    """Return the turns that are no event, by reason."""
    sums: defaultdict[Place, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for series in found:
        reason = series.labels.get(questions.REASON, "")
        sums[_place(series, series.labels.get(questions.ROLE, ""))][reason] += series.total
    return {place: {reason: n for reason, sum_ in of.items() if (n := whole(sum_))} for place, of in sums.items()}


def histograms(found: Iterable[Series], perspective: str) -> dict[Place, dict[int, int]]:
    """Return the durations of a SliRow, from native histograms and from VictoriaMetrics' ranges alike."""
    sums: defaultdict[Place, list[Bucket]] = defaultdict(list)
    for series in found:
        sums[_place(series, perspective)] += series.buckets or buckets.of_range(series)
    return {
        place: {index: n for index, sum_ in (buckets.histogram(of) or {}).items() if (n := whole(sum_))}
        for place, of in sums.items()
    }


def whole(number: float) -> int:
    """Return a count that was extrapolated as one. Raises ValueError for one that cannot be."""
    if not -1 < number < MAX_SUM:
        raise ValueError(f"{number:g} events, which cannot be")
    return max(0, round(number))


def _place(series: Series, perspective: str) -> Place:
    return Place(series.labels.get(questions.PROBE, ""), series.labels.get(questions.TARGET, ""), perspective)
