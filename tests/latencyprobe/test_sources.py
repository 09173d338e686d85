"""sources.py: what report and slow say of where their figures are from, and how much of it they were asked for."""

import json

import pytest

from latencyprobe.report import words
from latencyprobe.store import SqliteStore
from tests.latencyprobe.commands_run import run
from tests.support.fake_kubectl import FakeKubectl


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


@pytest.mark.parametrize("command", ["report", "slow"])
@pytest.mark.parametrize("where", [("-A",), ("-n", "shop")])
def test_a_cluster_without_a_report_says_so_whatever_is_asked(
    capfd: pytest.CaptureFixture[str], fake_kubectl: FakeKubectl, command: str, where: tuple[str, ...]
) -> None:
    fake_kubectl("""echo '{"items": []}'""")
    code, out, err = run(capfd, command, *where)
    assert (0, f"{words.NO_REPORT}\n", "") == (code, out, err)
    code, _, err = run(capfd, command, *where, "--target", "cart")
    assert (2, True) == (code, "'cart' is no target: no report has any: is that the right namespace" in err)


def test_where_none_of_the_slowest_is_recent_it_says_what_counts_all(
    capfd: pytest.CaptureFixture[str], store_of_today: SqliteStore
) -> None:
    of = ("--store", str(store_of_today.path))
    said = run(capfd, "slow", *of, "--since", "5m")[1]
    assert "None of the slowest RPCs of each hour began within the last 5m" in said
    assert f"`latencyprobe report {' '.join(of)} --since 5m` counts all RPCs" in said


def test_the_last_minutes_of_a_cluster_are_where_the_hint_says(capfd: pytest.CaptureFixture[str]) -> None:
    err = run(capfd, "report", "-n", "shop", "--since", "5m")[2]
    assert "`latencyprobe top -n NAMESPACE` has the last five minutes" in err
    assert "slow" not in err
