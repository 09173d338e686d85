"""The headline of a report: how many objectives are met, which is the worst, and what is not shown. Pure."""

from typing import NamedTuple

from latencyprobe.report import words
from latencyprobe.report.model import LatencyReport, Report
from latencyprobe.slo.evaluate import State


class Worst(NamedTuple):
    """The worst objective. `place`: its index among the results, `None` where it is not shown."""

    name: str
    state: State
    place: int | None


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


def omitted(report: Report | LatencyReport) -> str:
    """Return how many objectives found no room in the report; empty where all did."""
    return not_shown(report.omitted) if report.omitted else ""


def not_shown(objectives: int) -> str:
    """Return how many objectives are left out."""
    return f"{objectives} more objectives are not shown."
