"""What a report costs by the number of objectives: bytes of the store, time to evaluate, as who opens the store to read
does and as its writer does again each minute, and to render.

The stores are made (made_store.py): 98 days of each objective, so a window of 90 days and the one a week before.
CPU time of one core, medians. Storing the minute's rows is not in it.
`python -m benchmarks.reports`; docs/design/objectives.md, "What reports cost".
"""

import random
import shutil
import statistics
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from benchmarks import made_store
from latencyprobe.report import build, html, markdown, table
from latencyprobe.report.model import LatencyReport
from latencyprobe.slo.windows import DAY_S, HOUR_S, MINUTE_S
from latencyprobe.store import SqliteStore

DAYS = 98  # a window of 90 days, and the one a week before
NOW = 20_000 * DAY_S + 13 * HOUR_S + 17 * MINUTE_S  # not at the start of a row of hours or days
MINUTES = 50  # after that: past a full hour, at which more is read
LATER_S = 15  # after a minute is over it is evaluated


def documents(store: SqliteStore, now: int = NOW) -> list[LatencyReport]:
    """Return the reports of a made store, as the command line does."""
    by_namespace: dict[str, list[made_store.Objective]] = {}
    for objective in store.objectives():
        by_namespace.setdefault(objective.key.namespace, []).append(objective)
    return [build.document(name, build.build(store, of_one, now)) for name, of_one in by_namespace.items()]


def cpu_s(call: Callable[[], object], times: int) -> float:
    """Return the median CPU time of a call, after one that warms up."""
    call()
    found = []
    for _ in range(times):
        began_s = time.process_time()
        call()
        found.append(time.process_time() - began_s)
    return statistics.median(found)


def minutes_later(path: Path, minutes: int) -> list[float]:
    """Return the CPU time of the writer's evaluation of each of these minutes, which it has stored the rows of."""
    clock, draw, found = made_store.Clock(NOW), random.Random(2), []
    with SqliteStore(path, clock=clock, steady=clock) as store:
        documents(store)
        for _ in range(minutes):
            minute = int(clock.now)
            clock.now += MINUTE_S
            store.add([made_store.row(one.key, minute, 1, draw) for one in store.objectives()])
            began_s = time.process_time()
            documents(store, int(clock.now) + LATER_S)
            found.append(time.process_time() - began_s)
    return found


def kept_bytes(path: Path) -> int:
    """Return what a writer keeps in memory from one evaluation to the next."""
    tracemalloc.start()
    store = SqliteStore(path, clock=made_store.Clock(NOW))
    documents(store)
    whole, _ = tracemalloc.get_traced_memory()
    store.close()
    del store
    rest, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return whole - rest


def print_tables(reports: list[LatencyReport]) -> None:
    """Render reports as the command line does, for nobody."""
    console = Console(width=120, quiet=True)
    for report in reports:
        table.render(report, console)


def write_issues(reports: list[LatencyReport]) -> None:
    """Render each as an issue."""
    for report in reports:
        markdown.render([report])


@click.command()
@click.option("--objectives", multiple=True, type=int, default=(10, 100, 1_000), show_default=True)
@click.option("--times", default=5, show_default=True, help="Each call is measured so often.")
@click.option("--keep", type=click.Path(path_type=Path, file_okay=False), help="A folder for the stores: made once.")
def main(*, objectives: tuple[int, ...], times: int, keep: Path | None) -> None:
    """Measure reports of 90 days by the number of objectives."""
    found = Table(
        *("objectives", "store", "B / minute kept", "B / minute counted", "evaluated", "a minute later", "worst"),
        *("kept", "HTML", "table", "Markdown"),
    )
    with tempfile.TemporaryDirectory() as own:
        for count in objectives:
            path = (keep or Path(own)) / f"reports-{count}.db"
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                made_store.make(path, count, DAYS, NOW)
            size, (minutes, minute_bytes) = path.stat().st_size, made_store.bytes_of(path)[MINUTE_S]
            with SqliteStore(path, readonly=True) as store:
                reports = documents(store)
                evaluated_s = cpu_s(partial(documents, store), times)
            written = Path(own) / "written.db"
            shutil.copy(path, written)
            later = minutes_later(written, MINUTES)
            kept = kept_bytes(written)
            rendered = [cpu_s(partial(render, reports), times) for render in (html.render, print_tables, write_issues)]
            found.add_row(
                f"{count:,}",
                f"{size / 2**20:,.0f} MiB",
                f"{minute_bytes / minutes:.0f}",
                f"{size / count / (DAYS * DAY_S / MINUTE_S):.1f}",
                *(f"{seconds * 1e3:,.0f} ms" for seconds in (evaluated_s, statistics.median(later), max(later))),
                f"{kept / 2**10:,.0f} KiB",
                *(f"{seconds * 1e3:,.0f} ms" for seconds in rendered),
            )
    Console(width=140).print(found)


if __name__ == "__main__":
    main()
