"""reporting.py: what report prints and returns, of a store and of a cluster."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
import yaml
from msgspec.structs import replace

from latencyprobe import group, options, parsing
from latencyprobe.plan import Role
from latencyprobe.report import units
from latencyprobe.sli import SliRow
from latencyprobe.slo.evaluate import State
from latencyprobe.slo.objective import Objective, ObjectiveKey, objectives
from latencyprobe.store import SqliteStore, default_path
from tests.latencyprobe.commands_run import run
from tests.latencyprobe.report_examples import IDLE, RICH, document
from tests.latencyprobe.store_rows import Clock
from tests.support.fake_kubectl import FakeKubectl
from tests.support.prometheus import Series, needs_prometheus, openmetrics, prometheus

DATA = Path(__file__).parents[1] / "data" / "latencyprobes"


def test_report_of_a_store_is_one_latencyreport(capfd: pytest.CaptureFixture[str], store_of_today: SqliteStore) -> None:
    code, out, err = run(capfd, "report", "--store", store_of_today.path, "-o", "json")
    document = json.loads(out)
    assert (0, "", 1) == (code, err, len(out.splitlines()))
    assert ("LatencyReport", "shop") == (document["kind"], document["metadata"]["namespace"])
    as_yaml = yaml.safe_load(run(capfd, "report", "--store", store_of_today.path, "-o", "yaml")[1])
    assert (document["summary"], document["metadata"]) == (as_yaml["summary"], as_yaml["metadata"])


def test_report_of_several_namespaces_is_a_list(capfd: pytest.CaptureFixture[str], store_of_today: SqliteStore) -> None:
    (first, *_) = store_of_today.objectives()
    key = first.key._replace(namespace="bank")
    store_of_today.define("bank", "checkout", [msgspec.structs.replace(first, key=key)])
    document = json.loads(run(capfd, "report", "--store", store_of_today.path, "-o", "json")[1])
    assert ("List", ["bank", "shop"]) == (document["kind"], [i["metadata"]["namespace"] for i in document["items"]])
    text = run(capfd, "report", "--store", store_of_today.path)[1]
    assert "bank: 0 of 1 objectives met" in text
    assert "shop: " in text


def test_report_fails_on_violated_only_if_asked(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    now = int(time.time()) // 60 * 60
    key = ObjectiveKey("default", "redis", "", "fast", "h1", Role.SERVER)
    with SqliteStore(default_path()) as store:
        store.define(
            "default", "redis", [Objective(key, "redis", 25_000_000, "99", "1d", 100, errors_count_as_bad=True)]
        )
        store.add([SliRow(*key, minute=now - 60, good=100, bad=100)])
    assert 0 == run(capfd, "report")[0]
    code, out, _ = run(capfd, "report", "--fail-on", "violated")
    assert (1, True) == (code, out.startswith("0 of 1 objectives met; worst: redis/fast is Violated\n"))


@pytest.mark.parametrize("form", ["table", "json"])
def test_report_that_judges_nothing_is_not_green(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, fake_kubectl: FakeKubectl, form: str
) -> None:
    asked = ("report", "-n", "sohp", "-o", form, "--fail-on", "violated")
    fake_kubectl(f"/bin/cat {tmp_path}/reports")
    (tmp_path / "reports").write_text('{"items": []}')
    code, _, err = run(capfd, *asked)
    said = "latencyprobe: --fail-on violated: there is no report to judge by: is that the right namespace, or store?\n"
    assert (1, said) == (code, err)
    unknown = (replace(IDLE, objective="a"), IDLE, replace(IDLE, state=State.INCOMPLETE))
    (tmp_path / "reports").write_bytes(msgspec.json.encode({"items": [document(*unknown)]}))
    code, _, err = run(capfd, *asked)
    said = "latencyprobe: --fail-on violated: no objective is judged: 1 Incomplete, 2 No data\n"
    assert (1, True) == (code, err.endswith(said))
    (tmp_path / "reports").write_bytes(msgspec.json.encode({"items": [document(replace(RICH, state=State.MET), IDLE)]}))
    code, _, err = run(capfd, *asked)
    assert (0, False) == (code, "--fail-on" in err)


@pytest.mark.parametrize(
    ("form", "first", "last"),
    [
        ("html", "<!doctype html>", "</html>"),
        ("markdown", "## shop: 1 of 3 objectives met; worst: checkout/fast is Violated", "| 44.2ms |"),
        ("csv", "namespace,probe,objective,", "shop,checkout,calls,"),
    ],
)
def test_report_has_forms_for_files(
    capfd: pytest.CaptureFixture[str], store_of_today: SqliteStore, form: str, first: str, last: str
) -> None:
    code, out, err = run(capfd, "report", "--store", store_of_today.path, "-o", form)
    assert (0, "") == (code, err)
    assert out.endswith("\n")
    lines = out.splitlines()
    assert (True, True) == (lines[0].startswith(first), lines[-1].startswith(last))


def test_report_links_its_traces(capfd: pytest.CaptureFixture[str], store_of_today: SqliteStore) -> None:
    address = "https://tempo/{traceId}?a=1&b"
    args = ("report", "--store", store_of_today.path, "--trace-url", address, "-o")
    assert f'href="https://tempo/{59:032x}?a=1&amp;b"' in run(capfd, *args, "html")[1]
    assert f"](https://tempo/{59:032x}?a=1&b)" in run(capfd, *args, "markdown")[1]


@pytest.mark.parametrize(
    ("form", "address", "said"),
    [
        ("html", "javascript:{traceId}", "Invalid value for '--trace-url': no http or https address"),
        ("html", "http://jaeger/", "Invalid value for '--trace-url': {traceId} is not in its path"),
        ("csv", "http://jaeger/{traceId}", "--trace-url goes with -o html or markdown"),
    ],
)
def test_report_refuses_an_address_that_leads_to_no_trace(
    capfd: pytest.CaptureFixture[str], form: str, address: str, said: str
) -> None:
    code, out, err = run(capfd, "report", "-o", form, "--trace-url", address)
    assert (2, "", True) == (code, out, err.startswith(f"latencyprobe: {said}"))


def test_rows_that_found_no_room_are_told_beside_the_csv(
    capfd: pytest.CaptureFixture[str], store_of_today: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("latencyprobe.report.room.MAX_RESULTS", 2)
    code, out, err = run(capfd, "report", "--store", store_of_today.path, "-o", "csv")
    assert (0, 3, "latencyprobe: shop: 1 more objectives are not shown.\n") == (code, len(out.splitlines()), err)


def test_report_without_a_store_says_what_to_do(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    code, out, err = run(capfd, "report")
    remedy = "measure with `latencyprobe run --port PORT` first"
    expected = f"latencyprobe: {tmp_path}/latencyprobe/sli.db: no such store: {remedy}"
    assert (1, "", True) == (code, out, err.startswith(expected))


def test_sources_exclude_each_other(capfd: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capfd, "report", "-n", "shop", "-A")
    assert (2, "latencyprobe: -n and -A exclude each other: see latencyprobe report --help\n") == (code, err)


def test_figures_of_the_last_minutes_are_those_of_no_others(
    capfd: pytest.CaptureFixture[str], store_of_today: SqliteStore
) -> None:
    code, out, _ = run(capfd, "report", "--store", store_of_today.path, "--since", "10m", "-o", "json")
    fast = next(one for one in json.loads(out)["results"] if one["objective"] == "fast")
    assert (code, fast["state"]) == (0, "Violated"), "as of its window"
    assert fast["events"] in (10_000, 11_000), "whole minutes"
    assert fast["bad"] * 100 == fast["events"]
    assert not fast.keys() & {"topPeers", "waitedFor"}, "kept by the hour"


@pytest.mark.parametrize("form", ["table", "html", "markdown", "csv"])
def test_figures_of_the_last_minutes_say_so_in_every_form(
    capfd: pytest.CaptureFixture[str], store_of_today: SqliteStore, form: str
) -> None:
    _, out, err = run(capfd, "report", "--store", store_of_today.path, "--since", "10m", "-o", form)
    shown = err if form == "csv" else out
    assert "Figures of the last 10m; state, budget and burn rates of each objective" in shown


def test_report_of_one_target_counts_its_objectives(
    capfd: pytest.CaptureFixture[str], store_of_today: SqliteStore
) -> None:
    (first, *_) = store_of_today.objectives()
    key = first.key._replace(objective="other")
    store_of_today.define("shop", "second", [msgspec.structs.replace(first, key=key, target="basket")])
    document = json.loads(run(capfd, "report", "--store", store_of_today.path, "--target", "basket", "-o", "json")[1])
    assert [one["objective"] for one in document["results"]] == ["other"]
    assert sum(document["summary"].values()) == 1
    code, _, err = run(capfd, "report", "--store", store_of_today.path, "--target", "till")
    assert (2, True) == (code, "'till' is no target: one of basket, cart" in err)


def test_report_of_a_cluster_says_how_old_it_is_and_refuses_since(
    capfd: pytest.CaptureFixture[str], store_of_today: SqliteStore, fake_kubectl: FakeKubectl, tmp_path: Path
) -> None:
    document = json.loads(run(capfd, "report", "--store", store_of_today.path, "-o", "json")[1])
    for result in document["results"]:
        result["updated"] = units.iso((int(time.time()) - 600) * 10**9)
    (tmp_path / "reports").write_text(json.dumps({"items": [document]}))
    fake_kubectl(f"/bin/cat {tmp_path}/reports")
    out = run(capfd, "report", "-n", "shop")[1]
    assert "is Violated; updated 10m" in out
    assert "ago: is the operator running?" in out
    assert re.search(r"updated 10m\S* ago: is the operator running\?", run(capfd, "slow", "-n", "shop")[1])
    code, _, err = run(capfd, "report", "-n", "shop", "--since", "5m")
    assert (2, True) == (code, "--since needs a store; reports of a cluster are of whole windows" in err)


@pytest.mark.parametrize(
    ("args", "asked"),
    [
        (["report"], "get latencyreports.latencyprobe.dev --output json --request-timeout=15s"),
        (
            ["slow", "-n", "bank"],
            "get latencyreports.latencyprobe.dev --namespace bank --output json --request-timeout=15s",
        ),
        (["report", "-A"], "get latencyreports.latencyprobe.dev --all-namespaces --output json --request-timeout=15s"),
    ],
)
def test_as_a_plugin_of_kubectl_reports_are_the_clusters(
    fake_kubectl: FakeKubectl, capfd: pytest.CaptureFixture[str], args: list[str], asked: str
) -> None:
    called = fake_kubectl("""echo '{"items": []}'""")
    assert group.run(args, options.PLUGIN) == 0
    assert called.read_text() == f"{asked}\n"


def test_a_plugin_is_called_as_it_was_typed(capfd: pytest.CaptureFixture[str]) -> None:
    group.run(["report", "--help"], options.PLUGIN)
    assert "Usage: kubectl latencyprobe report" in capfd.readouterr().out


SHOP = """
apiVersion: latencyprobe.dev/v1alpha1
kind: LatencyProbe
metadata: {name: checkout, namespace: shop}
spec:
  targets: [{name: cart, ports: [8080]}]
  objectives: [{name: fast, target: cart, threshold: 25ms, goal: "99", window: 7d}]
"""


@needs_prometheus
def test_report_of_a_shared_store_is_of_the_objectives_of_a_file(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "shop.yaml").write_text(SHOP)
    (objective,) = (found for probe in parsing.load_file(tmp_path / "shop.yaml") for found in objectives(probe))
    labels = {
        "latencyprobe_probe_namespace": "shop",
        "latencyprobe_probe": "checkout",
        "latencyprobe_target": "cart",
        "latencyprobe_objective": "fast",
        "latencyprobe_objective_definition": objective.key.hash,
        "latencyprobe_perspective": "server",
    }
    now = int(time.time())
    events = [
        Series("latencyprobe_slo_events_total", labels | {"latencyprobe_outcome": outcome}, samples)
        for outcome, each in (("good", 10), ("bad", 1))
        if (samples := [(now - 3600 + 60 * i, each * i) for i in range(61)])
    ]
    with prometheus(tmp_path / "server", openmetrics(events)) as server:
        asked = ("report", "--store", server.url, "-f", tmp_path / "shop.yaml")
        code, out, _ = run(capfd, *asked, "-o", "json", "--fail-on", "violated")
        (result,) = json.loads(out)["results"]
        assert (code, result["state"]) == (1, "Violated")
        assert 590 <= result["events"] - result["bad"] <= 610
        assert "slowest" in result["untold"]
        assert "not in the metrics" in run(capfd, *asked)[1]
        code, _, err = run(capfd, "report", "--store", f"{server.url}/no", "-f", tmp_path / "shop.yaml")
        assert (code, err.count("give the URL that /api/v1 follows")) == (1, 1)


def test_a_shared_store_needs_a_file_and_only_report_asks_it(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(SHOP)
    for words in (("report", "--store", "http://p:9090"), ("slow", "--store", "http://p:9090")):
        code, _, err = run(capfd, *words)
        assert (code, "`report` asks for it with -f FILE" in err) == (2, True)
    code, _, err = run(capfd, "report", "-f", tmp_path / "shop.yaml")
    assert (code, "-f goes with --store http://" in err) == (2, True)
    code, _, err = run(capfd, "report", "--store", "http://me:secret@p", "-f", tmp_path / "shop.yaml")
    assert (code, "TOKEN_FILE" in err, "secret" in err) == (1, True, False)


HOUR_S, DAY_S = 3600, 86_400
KEY = ObjectiveKey("shop", "checkout", "u1", "fast", "h1", Role.SERVER)


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
            store.add(SliRow(*KEY, minute=at, good=100, bad=bad) for at in range(day, day + DAY_S, HOUR_S))
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
    assert "from counts of whole hours: burn rates over less are not known any more." in err
    assert ["5m", "30m"] == [burn["short"] for burn in now["burnRates"]]
    assert "burnRates" not in then
    page = run(capfd, "report", "--store", store_of_weeks, "--at", days_ago(12), "-o", "html")[1]
    assert "<span>then: 0.9\u00a0%" in page


def test_table_of_a_moment_says_so_and_how_far_the_store_reaches(
    capfd: pytest.CaptureFixture[str], store_of_weeks: Path
) -> None:
    date = days_ago(38)[:10]
    code, out, err = run(capfd, "report", "--store", store_of_weeks, "--at", date)
    first, second, third = out.splitlines()[:3]
    assert (0, "") == (code, err)
    assert first.startswith("As of ")
    assert " 00:00 UTC, from counts of whole days: " in first
    reach = f"The store reaches back to {days_ago(40)[:10]} "
    assert second.startswith(reach)
    assert second.endswith(": windows that began before hold what came since.")
    assert "updated" not in third


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["--at", days_ago(100)], 1, "or is kept of it: the store reaches back to "),
        (["--at", days_ago(20), "--since", "5m"], 1, "the store keeps hours alone: give --since 1h or more"),
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


def test_report_of_a_peer_and_slow_of_it(capfd: pytest.CaptureFixture[str], store_of_today: SqliteStore) -> None:
    of = ("--store", store_of_today.path, "--peer", "users")
    out = run(capfd, "report", *of)[1]
    assert out.startswith("Of peers only those with 'users' in their name; state, SLI and budget are of all.\n")
    assert "waiting for shop/users:8080" in out
    assert "waiting for shop/redis" not in out
    assert 1 == len(run(capfd, "slow", *of, "-o", "json")[1].splitlines())
    code, _, err = run(capfd, "slow", "--store", store_of_today.path, "--peer", "till")
    known = "shop/frontend, shop/redis:6379, shop/users:8080"
    assert (2, True) == (code, f"no peer has 'till' in its name; known are: {known}" in err)


def test_report_is_sorted_and_cut(capfd: pytest.CaptureFixture[str], store_of_today: SqliteStore) -> None:
    args = ("report", "--store", store_of_today.path, "--sort", "name", "--limit", "2")
    document = json.loads(run(capfd, *args, "-o", "json")[1])
    assert (["calls", "fast"], 1) == ([one["objective"] for one in document["results"]], document["omitted"])
    assert 3 == sum(document["summary"].values())
    assert 1 == run(capfd, *args, "--fail-on", "violated")[0]
    for limit in ("1", "2"):
        said = run(capfd, *args[:-1], limit)[1]
        assert "1 of 3 objectives met; worst: checkout/fast is Violated" in said, "shown or not"


def test_watching_prints_again_until_it_is_ended(store_of_today: SqliteStore) -> None:
    code = "from latencyprobe.cli import main; main()"
    command = [sys.executable, "-c", code, "report", "--store", str(store_of_today.path), "--watch"]
    with subprocess.Popen([*command, "--interval", "1ms", "-o", "json"], stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        lines = [json.loads(watching.stdout.readline()) for _ in range(3)]
        watching.send_signal(signal.SIGINT)
        watching.stdout.read()
        assert 0 == watching.wait(10)
    assert {"LatencyReport"} == {one["kind"] for one in lines}
