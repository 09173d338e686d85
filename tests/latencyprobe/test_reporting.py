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

from latencyprobe import group, options
from latencyprobe.plan import Role
from latencyprobe.report import units
from latencyprobe.sli import SliRow
from latencyprobe.slo.evaluate import State
from latencyprobe.slo.objective import Objective, ObjectiveKey
from latencyprobe.store import SqliteStore, default_path
from tests.latencyprobe.commands_run import run
from tests.latencyprobe.report_examples import IDLE, RICH, document
from tests.support.fake_kubectl import FakeKubectl


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
    assert fast["events"] in (9_000, 10_000), "whole minutes"
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
