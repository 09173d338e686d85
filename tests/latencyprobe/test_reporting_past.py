"""reporting.py: what report prints of a moment that is over, and says of what cannot be reported."""

import json
import time
from pathlib import Path

import pytest

from latencyprobe.report import units
from latencyprobe.sli import SliRow
from latencyprobe.slo.objective import Objective
from latencyprobe.store import SqliteStore
from tests.latencyprobe.commands_run import run
from tests.latencyprobe.store_rows import DAY_S, HOUR_S, KEY, Clock


@pytest.fixture
def store_of_weeks(tmp_path: Path) -> Path:
    """Return one of 40 days until now: 100 good events an hour, and 1 bad one in each but those of the last 10 days."""
    now = int(time.time()) // HOUR_S * HOUR_S
    clock = Clock(now - 40 * DAY_S)
    with SqliteStore(tmp_path / "weeks.db", clock=clock, steady=clock) as store:
        store.define("shop", "checkout", [Objective(KEY, "cart", 25_000_000, "99", "7d", 10, errors_count_as_bad=True)])
        for day in range(now - 40 * DAY_S, now, DAY_S):
            clock.now = day
            bad = int(day < now - 10 * DAY_S)
            counts = {"good": 100, "bad": bad, "histogram": {100: 100 + bad}}
            store.add(SliRow(*KEY, minute=at, **counts) for at in range(day, day + DAY_S, HOUR_S))
        clock.now = now
        store.compact(now)
    return tmp_path / "weeks.db"


def days_ago(days: float) -> str:
    return units.iso(int(time.time() - days * DAY_S) * 10**9)


def test_report_of_a_moment_is_as_it_was_then(capfd: pytest.CaptureFixture[str], store_of_weeks: Path) -> None:
    now = json.loads(run(capfd, "report", "--store", store_of_weeks, "-o", "json")[1])["results"][0]
    assert ("100", "Met") == (now["errorBudgetRemaining"], now["state"])
    code, out, err = run(capfd, "report", "--store", store_of_weeks, "--at", days_ago(12), "-o", "json")
    (then,) = json.loads(out)["results"]
    assert (0, "AtRisk", 7 * 24, "0.9") == (code, then["state"], then["bad"], then["errorBudgetRemaining"])
    assert then["updated"] == f"{days_ago(12)[:13]}:00:00Z"
    assert err.startswith("latencyprobe: As of ")
    assert ", from counts of whole hours.\n" in err
    assert "Burn rates over 5m, 30m are not known any more: whole hours or days alone are kept " in err
    assert ["5m", "30m"] == [burn["short"] for burn in now["burnRates"]]
    assert "burnRates" not in then
    page = run(capfd, "report", "--store", store_of_weeks, "--at", days_ago(12), "-o", "html")[1]
    assert "<span>then: 0.9\u00a0%" in page


def test_report_of_a_moment_has_no_last_minutes_where_whole_hours_or_days_alone_are_kept(
    capfd: pytest.CaptureFixture[str], store_of_weeks: Path
) -> None:
    with SqliteStore(store_of_weeks, readonly=True) as store:
        minutes = store.horizons().minutes

    def told(moment: int) -> dict[str, str] | None:
        at = units.iso(moment * 10**9)
        (result,) = json.loads(run(capfd, "report", "--store", store_of_weeks, "--at", at, "-o", "json")[1])["results"]
        now: dict[str, str] | None = result.get("now")
        return now

    assert [None] * 3 == [told(minutes - days * DAY_S) for days in (1, 10, 37)]
    assert told(minutes + 120) is None, "they begin in a whole hour"
    assert (now := told(minutes + HOUR_S + 120)) is not None
    assert ("5m", "0.33") == (now["over"], now["rate"])


def test_table_of_a_moment_says_so_and_how_far_the_store_reaches(
    capfd: pytest.CaptureFixture[str], store_of_weeks: Path
) -> None:
    date = days_ago(38)[:10]
    code, out, err = run(capfd, "report", "--store", store_of_weeks, "--at", date)
    first, second, third, fourth = out.splitlines()[:4]
    assert (0, "") == (code, err)
    assert first.startswith("As of ")
    assert first.endswith(" 00:00 UTC, from counts of whole days.")
    assert second.startswith("Burn rates over 5m, 30m, 1h, 6h are not known any more: ")
    reach = f"The store reaches back to {days_ago(40)[:10]} "
    assert third.startswith(reach)
    assert third.endswith(": windows that began before hold what came since.")
    assert "updated" not in fourth


def test_just_after_the_last_minute_that_is_not_kept_no_figure_is_of_more_than_it_says(
    capfd: pytest.CaptureFixture[str], store_of_weeks: Path
) -> None:
    with SqliteStore(store_of_weeks, readonly=True) as store:
        minutes = store.horizons().minutes

    def told(after_s: int, *more: str) -> tuple[str, int, list[str], str]:
        at = units.iso((minutes + after_s) * 10**9)
        code, out, err = run(capfd, "report", "--store", store_of_weeks, "--at", at, *more, "-o", "json")
        if code:
            return "", 0, [], err
        (result,) = json.loads(out)["results"]
        return result["updated"][11:16], result["events"], [burn["short"] for burn in result.get("burnRates", ())], err

    when = units.iso(minutes * 10**9)[11:13]
    assert told(120)[::2] == (f"{when}:02", [])
    assert "Burn rates over 5m, 30m are not known any more: " in told(120)[3]
    assert told(105 * 60)[2] == ["5m"], "of 6h there would be 6h 45m"
    assert told(2 * HOUR_S)[2] == ["5m", "30m"]
    assert "Burn rates" not in told(2 * HOUR_S)[3]
    assert "the store keeps hours alone: give --since 1h" in told(120, "--since", "5m")[3]
    assert told(1200, "--since", "15m")[:2] == (f"{when}:20", 0)
    assert told(1200, "--since", "20m")[:2] == (f"{when}:20", 100)
    assert told(1200, "--since", "6h")[:2] == (f"{when}:20", 700), "with the hour that it begins in"
    assert "the store keeps hours alone: give --since 2h\n" in told(1200, "--since", "90m")[3]
    assert "the store keeps hours alone: give --since 2h\n" in told(-5 * HOUR_S, "--since", "90m")[3]
    assert told(1200, "--since", "2h")[:2] == (f"{when}:00", 200)
    assert told(1200, "--since", "1h")[:2] == (f"{when}:00", 100), "not of 1h 20m"


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["--at", days_ago(100)], 1, "or is kept of it: the store reaches back to "),
        (["--at", days_ago(20), "--since", "5m"], 1, "the store keeps hours alone: give --since 1h"),
        (["--at", "2026-01-01", "-n", "shop"], 2, "--at needs a store; reports of a cluster are of whole windows"),
        (["--at", "2026-01-01", "--watch"], 2, "--watch and --at exclude each other: what is over does not change"),
        (["--watch", "--fail-on", "violated"], 2, "--watch and --fail-on exclude each other"),
        (["--watch", "-o", "html"], 2, "--watch goes with -o table, json, yaml"),
        (["--sort", "age"], 2, "Invalid value for '--sort': 'age' is not one of 'state', 'budget', 'burn', 'name'"),
        (["--limit", "0"], 2, "Invalid value for '--limit': 0 is not in the range x>=1"),
        (["--peer", "nobody"], 2, "no peer has 'nobody' in its name; known are: none"),
    ],
)
def test_what_cannot_be_reported_says_what_can(
    capfd: pytest.CaptureFixture[str], store_of_weeks: Path, args: list[str], code: int, said: str
) -> None:
    store = [] if "-n" in args else ["--store", store_of_weeks]
    found, out, err = run(capfd, "report", *store, *args)
    assert (code, "", 1, True) == (found, out, len(err.splitlines()), said in err), err


def test_empty_store_has_no_past(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    SqliteStore(tmp_path / "empty.db").close()
    code, _, err = run(capfd, "report", "--store", tmp_path / "empty.db", "--at", "2026-01-01")
    assert (1, True) == (code, "the store has no counts yet: measure with" in err)
