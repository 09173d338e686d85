"""sources.py: what report and slow say of where their figures are from, and how much of it they were asked for."""

import json

import pytest

from latencyprobe.store import SqliteStore
from tests.latencyprobe.commands_run import run


@pytest.mark.parametrize(("since", "minutes"), [("1m30s", 2), ("500ms", 1), ("10m", 10)])
def test_what_is_asked_for_is_rounded_up_to_minutes_and_said_so(
    capfd: pytest.CaptureFixture[str], store_of_today: SqliteStore, since: str, minutes: int
) -> None:
    of = ("--store", store_of_today.path, "--since", since)
    _, out, err = run(capfd, "report", *of, "-o", "json")
    assert f"Figures of the last {minutes}m;" in err
    fast = next(one for one in json.loads(out)["results"] if one["objective"] == "fast")
    assert fast["events"] in (1000 * minutes, 1000 * (minutes - 1)), "a minute may begin meanwhile"
    assert minutes > 9 or f"within the last {minutes}m" in run(capfd, "slow", *of)[1]
