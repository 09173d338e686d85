"""What a run has found: tables on the screen while it goes on; at its end the summary as text, Markdown and JSON."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.compare import Interval, added, paired
from benchmarks.goals import GOALS
from benchmarks.rounds import Slices

_COLUMNS = ("id", "measure", "found [95 %]", "A/A", "goal", "verdict")


@dataclass(frozen=True)
class Found:
    """What was found for a goal; `control`: the same of nothing (A/A). `note`: what stands beside it."""

    id: str
    found: Interval
    control: Interval | None = None
    note: str = ""

    @property
    def verdict(self) -> str:
        """As the goal judges it."""
        return GOALS[self.id].verdict(self.found, self.control)

    @property
    def row(self) -> tuple[str, ...]:
        """One row of the summary."""
        goal = GOALS[self.id]
        form = ".3f" if abs(self.found.median) < 10 else ",.1f"
        control = self.control.text(".3f") if self.control else "–"
        measure = f"{goal.measure} ({self.note})" if self.note else goal.measure
        return goal.id, measure, self.found.text(form) + goal.unit, control, goal.text, self.verdict


@dataclass
class Report:
    """Filled by the measures in turn. `details`: tables below the summary, as (title, columns, rows)."""

    headline: dict[str, str]
    console: Console = field(default_factory=lambda: Console(record=True, width=140))
    found: list[Found] = field(default_factory=list)
    absent: dict[str, str] = field(default_factory=dict)
    details: list[tuple[str, tuple[str, ...], list[tuple[str, ...]]]] = field(default_factory=list)

    def finds(self, found: Found) -> None:
        """Take over one finding."""
        self.found.append(found)
        self.console.print(f"{found.id}: {found.row[2]}, {found.verdict}", highlight=False)

    def lacks(self, what: str, why: str) -> None:
        """Note what could not be measured here."""
        self.absent[what] = why
        self.console.print(f"{what}: {why}", highlight=False)

    def table(self, title: str, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
        """Print a table and keep it."""
        self.details.append((title, columns, list(rows)))
        _print(self.console, title, columns, rows)

    def compared(self, title: str, slices: Slices, unit: str = "ns", bare: str = "none") -> None:
        """A table of variants beside the mean of both that are `bare`; "none again" ÷ "none" is the A/A control."""
        again = f"{bare} again"
        none, baseline = slices[bare], (slices[bare] + slices[again]) / 2
        least = min(none.min(), slices[again].min())
        rows = []
        for variant, values in slices.items():
            if variant == bare:
                rows.append((variant, f"{np.median(values):,.0f}", "", "", ""))
                continue
            beside = none if variant == again else baseline
            ratio, more = paired(values, beside).text(".3f"), added(values, beside).text("+,.0f")
            rows.append((variant, f"{np.median(values):,.0f}", ratio, f"{values.min() / least:.3f}", more))
        self.table(title, ("variant", unit, "ratio [95 %]", "min ÷ min", f"added {unit} [95 %]"), rows)

    def summary(self) -> None:
        """Print the one table of all goals."""
        if rows := self._rows():
            _print(self.console, ", ".join(self.headline.values()), _COLUMNS, rows)

    def markdown(self) -> str:
        """The same for a page, with the tables behind it."""
        parts = [", ".join(self.headline.values()) + "."]
        if rows := self._rows():
            parts += ["", *_markdown(_COLUMNS, rows)]
        for title, columns, rows in self.details:
            parts += ["", f"**{title}**", "", *_markdown(columns, rows)]
        return "\n".join(parts) + "\n"

    def save(self, folder: Path) -> None:
        """Write cost.json, cost.md and cost.txt."""
        found = [{**asdict(one), "goal": asdict(GOALS[one.id]), "verdict": one.verdict} for one in self.found]
        details = [
            {"title": title, "rows": [dict(zip(names, row, strict=True)) for row in rows]}
            for title, names, rows in self.details
        ]
        document = {**self.headline, "found": found, "absent": self.absent, "tables": details}
        (folder / "cost.json").write_text(json.dumps(document, indent=2, ensure_ascii=False))
        (folder / "cost.md").write_text(self.markdown())
        (folder / "cost.txt").write_text(self.console.export_text())

    def _rows(self) -> list[tuple[str, ...]]:
        absent = [
            (what, GOALS[what].measure, why, "–", GOALS[what].text, "not measured")
            for what, why in self.absent.items()
            if what in GOALS
        ]
        return sorted([*(one.row for one in self.found), *absent], key=lambda row: list(GOALS).index(row[0]))


def _print(console: Console, title: str, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    table = Table(*columns, title=title, title_justify="left")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def _markdown(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    lines = [columns, ("---",) * len(columns), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]
