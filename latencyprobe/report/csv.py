"""The report as CSV (RFC 4180): one row for each objective, for a spreadsheet or a database. Pure.

The columns keep their names and order; new ones come last. Units stand in the names; a cell is empty where nothing is
known. docs/slo.md says what they are.
"""

import csv
import io
import re
from collections.abc import Callable, Iterable
from decimal import Decimal

from latencyprobe.report.model import LatencyReport, Quantiles, Result
from latencyprobe.report.units import duration_ns
from latencyprobe.text import printable

_Cell = str | int | Decimal | None
_NS_PER_MS = 10**6
_FORMULA = ("=", "+", "-", "@")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?", re.ASCII)


def _ms(duration: str | None) -> Decimal | None:
    return None if duration is None else Decimal(duration_ns(duration)) / _NS_PER_MS


def _quantile(pick: Callable[[Quantiles], str]) -> Callable[[Result], _Cell]:
    return lambda one: None if one.quantiles is None else _ms(pick(one.quantiles))


def _firing(result: Result) -> str:
    burns = (one for one in result.burn_rates if one.state == "Firing")
    return "; ".join(f"{one.severity} {one.long}/{one.short}" for one in burns)


COLUMNS: dict[str, Callable[[Result], _Cell]] = {
    "probe": lambda one: one.probe,
    "objective": lambda one: one.objective,
    "target": lambda one: one.target,
    "perspective": lambda one: one.perspective,
    "threshold_ms": lambda one: _ms(one.threshold),
    "goal_percent": lambda one: one.goal,
    "window": lambda one: one.window,
    "state": lambda one: one.state.value,
    "events": lambda one: one.events,
    "bad": lambda one: one.bad,
    "events_needed": lambda one: one.events_needed,
    "sli_percent": lambda one: one.sli,
    "budget_left_percent": lambda one: one.error_budget_remaining,
    "alerts_firing": _firing,
    "p50_ms": _quantile(lambda found: found.p50),
    "p90_ms": _quantile(lambda found: found.p90),
    "p99_ms": _quantile(lambda found: found.p99),
    "p999_ms": _quantile(lambda found: found.p999),
    "burned_by": lambda one: one.bad_by_stage[0].stage if one.bad_by_stage else None,
    "burned_by_percent": lambda one: one.bad_by_stage[0].share if one.bad_by_stage else None,
    "worst_peer": lambda one: one.top_peers[0].peer if one.top_peers else None,
    "worst_peer_bad": lambda one: one.top_peers[0].bad if one.top_peers else None,
    "slowest_ms": lambda one: _ms(one.slowest[0].duration) if one.slowest else None,
    "slowest_trace_id": lambda one: one.slowest[0].trace_id if one.slowest else None,
    "coverage_percent": lambda one: one.coverage.ratio,
    "seen": lambda one: one.coverage.seen,
    "ambiguous": lambda one: one.coverage.ambiguous,
    "excluded": lambda one: one.coverage.excluded,
    "lost": lambda one: one.coverage.lost,
    "records_lost": lambda one: one.coverage.records_lost,
    "sampled_out": lambda one: one.coverage.sampled_out,
    "joined": lambda one: one.coverage.joined,
    "nodes_missing": lambda one: one.coverage.nodes_missing,
    "not_measured": lambda one: one.coverage.gaps,
    "since": lambda one: one.since,
    "updated": lambda one: one.updated,
    "reason": lambda one: one.reason,
    "other_end": lambda one: one.other_end.perspective if one.other_end else None,
    "other_end_p50_ms": lambda one: _ms(one.other_end.p50) if one.other_end else None,
    "other_end_p99_ms": lambda one: _ms(one.other_end.p99) if one.other_end else None,
}


_UNTOLD = {  # columns that have a figure also where nobody knows one, by the field of a Result
    "coverage.lost": "lost",
    "coverage.recordsLost": "records_lost",
    "coverage.sampledOut": "sampled_out",
    "coverage.joined": "joined",
    "coverage.gaps": "not_measured",
}


def render(reports: Iterable[LatencyReport]) -> str:
    """Return the header and one line for each objective, worst first within its namespace; lines end with CR LF."""
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow(["namespace", *COLUMNS])
    for report in reports:
        for result in report.results:
            unknown = {_UNTOLD[field] for field in result.untold if field in _UNTOLD}
            cells = [None if name in unknown else cell(result) for name, cell in COLUMNS.items()]
            cells.insert(0, report.metadata.namespace)
            writer.writerow(map(_written, cells))
    return file.getvalue()


def _written(cell: _Cell) -> str:
    """Return a cell as text. What is no number and a spreadsheet would compute gets an apostrophe."""
    text = "" if cell is None else f"{cell:f}" if isinstance(cell, Decimal) else printable(str(cell))
    return f"'{text}" if text.startswith(_FORMULA) and not _NUMBER.fullmatch(text) else text
