"""The headline of a report: how many objectives are met, which is the worst, what is not shown, how old it is. Pure."""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from latencyprobe.report import units, words
from latencyprobe.report.model import LatencyReport, Report, Result, Summary
from latencyprobe.slo.evaluate import State

STALE_S = 180  # the operator renews a LatencyReport before: nobody renews one that is older
_FRESH_S = 2
_AHEAD_S = 60  # clocks of hosts may be apart by less
_NOT_COUNTED_S = 300  # who measures counts each minute, with RPCs or without


class Worst(NamedTuple):
    """The worst objective. `place`: its index among the results, `None` where it is not shown."""

    name: str
    state: State
    place: int | None


class Age(NamedTuple):
    """How old figures are; empty where they are of now. `stale`: older than a person takes them for."""

    text: str = ""
    stale: bool = False

    @property
    def sentence(self) -> str:
        """The same, to stand alone."""
        return f"{self.text[:1].upper()}{self.text[1:]}{'' if self.text.endswith('?') else '.'}"


NOW = Age()


def met(report: Report | LatencyReport) -> str:
    """Return how many objectives of all are met."""
    return f"{report.summary[State.MET.column]} of {len(report.results) + report.omitted} objectives met"


def worst(report: Report | LatencyReport) -> Worst | None:
    """Return the worst objective, shown or not; `None` where all that are known are met."""
    if isinstance(report, LatencyReport) and report.worst:
        return Worst(report.worst, next(state for state in State if report.summary[state.column]), None)
    place = min(range(len(report.results)), key=lambda i: list(State).index(report.results[i].state), default=None)
    if place is None or (first := report.results[place]).state is State.MET:
        return None
    return Worst(words.name(first), first.state, place)


def headline(report: Report | LatencyReport, title: str = "") -> str:
    """Return how many objectives are met and the worst. `title`: of the namespace, where there may be several."""
    found = worst(report)
    said = f"; worst: {found.name} is {found.state.words}" if found else ""
    return f"{title}: {met(report)}{said}" if title else met(report) + said


def updated(age_s: int) -> Age:
    """Return how long ago a report of a cluster was made; it is stale where nobody seems to renew it, and where that
    cannot be told: by this clock it is still to come."""
    if age_s <= -_AHEAD_S:
        return Age(f"updated {units.time_span(-age_s)} from now: is a clock wrong?", stale=True)
    if age_s < _FRESH_S:
        return NOW
    told = f"updated {units.time_span(age_s)} ago"
    return Age(told) if age_s < STALE_S else Age(f"{told}: is the operator running?", stale=True)


def counted(age_s: int) -> Age:
    """Return how long ago a host last counted, where nobody seems to measure any more."""
    return NOW if age_s < _NOT_COUNTED_S else Age(f"last counted {units.time_span(age_s)} ago", stale=True)


def omitted(report: Report | LatencyReport) -> str:
    """Return how many objectives found no room in the report; empty where all did."""
    return not_shown(report.omitted) if report.omitted else ""


def not_shown(objectives: int) -> str:
    """Return how many objectives are left out."""
    return f"{objectives} more objectives are not shown."


def summary(results: Iterable[Result]) -> Summary:
    """Return how many results are in each state."""
    found = Counter(result.state for result in results)
    return {state.column: found[state] for state in State}


def updated_unix_ns(report: LatencyReport) -> int:
    """Return when a report was made, Unix time in ns; 0 for one without results."""
    return max((units.unix_ns(result.updated) for result in report.results), default=0)
