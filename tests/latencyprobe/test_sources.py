"""sources.py: what report and slow say of where their figures are from, and how much of it they were asked for."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from latencyprobe.report import units, words
from latencyprobe.store import SqliteStore
from tests.latencyprobe.commands_run import run
from tests.latencyprobe.conftest import filled
from tests.latencyprobe.report_examples import IDLE, document
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


def test_what_a_cluster_has_of_no_rpc_says_where_all_are_counted(
    capfd: pytest.CaptureFixture[str], fake_kubectl: FakeKubectl, tmp_path: Path
) -> None:
    (tmp_path / "reports").write_bytes(msgspec.json.encode({"items": [document(IDLE)]}))
    fake_kubectl(f"/bin/cat {tmp_path}/reports")
    said = run(capfd, "slow", "-n", "shop", "--since", "5m")[1]
    assert said.endswith("within the last 5m: `latencyprobe report -n shop` counts all RPCs.\n")


def test_the_last_minutes_of_a_cluster_are_where_the_hint_says(capfd: pytest.CaptureFixture[str]) -> None:
    err = run(capfd, "report", "-n", "shop", "--since", "5m")[2]
    assert "`latencyprobe top -n NAMESPACE` has the last five minutes" in err
    assert "slow" not in err


@pytest.fixture
def store_of_yesterday(tmp_path: Path) -> Iterator[SqliteStore]:
    yield from filled(tmp_path / "old.db", int(time.time()) // 60 * 60 - 26 * 3600)


@pytest.mark.parametrize(
    ("since", "said"), [((), "last counted 1d2h"), (("--since", "5m"), "no RPC in the last 5m; last counted 1d2h")]
)
def test_a_store_that_nobody_counts_in_any_more_says_so_in_every_form(
    capfd: pytest.CaptureFixture[str], store_of_yesterday: SqliteStore, since: tuple[str, ...], said: str
) -> None:
    asked = ("report", "--store", store_of_yesterday.path, *since)
    table = run(capfd, *asked)[1]
    assert f"is Violated; {said}" in table
    assert ("no RPC" in table.partition("Met ")[2].splitlines()[0]) == bool(since), "not blank, as if it was met"
    for form in ("html", "markdown"):
        assert f"{said[:1].upper()}{said[1:]}" in run(capfd, *asked, "-o", form)[1]
    for form in ("json", "csv"):
        assert f"latencyprobe: {said[:1].upper()}{said[1:]}" in run(capfd, *asked, "-o", form)[2]


def test_slow_of_a_store_that_nobody_counts_in_any_more_says_so(
    capfd: pytest.CaptureFixture[str], store_of_yesterday: SqliteStore
) -> None:
    of = ("--store", store_of_yesterday.path)
    assert "last counted 1d2h" in run(capfd, "slow", *of)[1].splitlines()[-1]
    assert "No RPC in the last 5m; last counted 1d2h" in run(capfd, "slow", *of, "--since", "5m")[1]


def test_what_is_counted_now_and_what_is_over_has_no_age(
    capfd: pytest.CaptureFixture[str], store_of_today: SqliteStore, store_of_yesterday: SqliteStore
) -> None:
    assert "last counted" not in run(capfd, "report", "--store", store_of_today.path)[1]
    then = units.iso((int(time.time()) - 26 * 3600) * 10**9)
    out = run(capfd, "report", "--store", store_of_yesterday.path, "--at", then)[1]
    assert ("objectives met" in out, "last counted" in out) == (True, False)
