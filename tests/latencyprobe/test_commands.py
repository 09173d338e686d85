"""commands.py: what validate, report, slow and version print and return."""

import json
import time
from pathlib import Path

import msgspec
import pytest
import yaml

from latencyprobe import group
from latencyprobe.plan import Role
from latencyprobe.sli import SliRow
from latencyprobe.slo.objective import Objective, ObjectiveKey
from latencyprobe.store import SqliteStore, default_path

DATA = Path(__file__).parents[1] / "data" / "latencyprobes"


def run(capfd: pytest.CaptureFixture[str], *args: object) -> tuple[int, str, str]:
    code = group.run([str(arg) for arg in args])
    out, err = capfd.readouterr()
    return code, out, err


def test_validate_says_one_line_for_each_good_document(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capfd, "validate", DATA / "good" / "whole.yaml", DATA / "good" / "smallest.yaml")
    assert (0, "") == (code, err)
    assert (
        f"{DATA}/good/whole.yaml: LatencyProbe default/whole is valid: targets 2, objectives 2" == out.splitlines()[0]
    )
    assert 2 == len(out.splitlines())


def test_validate_goes_on_after_a_bad_file_and_fails(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    files = [DATA / "bad" / "goal-101.yaml", tmp_path / "missing.yaml", DATA / "good" / "whole.yaml"]
    code, out, err = run(capfd, "validate", *files)
    assert (1, 1) == (code, len(out.splitlines()))
    goal, missing = err.splitlines()
    assert goal.startswith(f"latencyprobe: {files[0]}: spec.objectives[0].goal: '101': expected a percentage above 0")
    assert (
        f"latencyprobe: {files[1]}: No such file or directory: give the path of a LatencyProbe's YAML file" == missing
    )


def test_version_names_the_package(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(capfd, "version")[1].startswith("latencyprobe 0.")


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
    monkeypatch.setattr("latencyprobe.report.build.MAX_RESULTS", 2)
    code, out, err = run(capfd, "report", "--store", store_of_today.path, "-o", "csv")
    assert (0, 3, "latencyprobe: shop: 1 more objectives are not shown.\n") == (code, len(out.splitlines()), err)


def test_report_without_a_store_says_what_to_do(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    code, out, err = run(capfd, "report")
    expected = (
        f"latencyprobe: {tmp_path}/latencyprobe/sli.db: no such store: measure with `latencyprobe run -f FILE` first"
    )
    assert (1, "", True) == (code, out, err.startswith(expected))


def test_sources_exclude_each_other(capfd: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capfd, "report", "-n", "shop", "-A")
    assert (2, "latencyprobe: -n and -A exclude each other: see latencyprobe report --help\n") == (code, err)


def test_slow_prints_one_object_a_line(capfd: pytest.CaptureFixture[str], store_of_today: SqliteStore) -> None:
    code, out, _ = run(capfd, "slow", "--store", store_of_today.path, "--target", "cart", "-o", "json")
    lines = [json.loads(line) for line in out.splitlines()]
    assert (0, 5) == (code, len(lines))
    assert ["ok", "rto"] == [hit["what"] for hit in lines[0]["evidence"]]
    assert ("cart", "Server", f"{59:032x}") == tuple(lines[0][name] for name in ("target", "perspective", "traceId"))


def test_slow_table_shows_stages_and_trace_ids(capfd: pytest.CaptureFixture[str], store_of_today: SqliteStore) -> None:
    out = run(capfd, "slow", "--store", store_of_today.path)[1]
    assert f"{59:032x}" in out
    assert "process 40.1ms" in out
    assert "resent rto, 812ms" in out


def test_slow_refuses_an_unknown_target(capfd: pytest.CaptureFixture[str], store_of_today: SqliteStore) -> None:
    code, _, err = run(capfd, "slow", "--store", store_of_today.path, "--target", "basket")
    assert (2, True) == (code, "'basket' is no target: one of cart" in err)
