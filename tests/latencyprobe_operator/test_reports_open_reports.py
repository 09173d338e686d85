"""A LatencyReport as a Report of openreports.io: one verdict for each objective, bounded, with the first words."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from latencyprobe.report import room
from latencyprobe.sli import Coverage, SliRow
from latencyprobe.slo.evaluate import State
from latencyprobe.slo.objective import objectives
from latencyprobe.store import SqliteStore
from latencyprobe_operator.cluster.owners import owner
from latencyprobe_operator.reports import documents
from latencyprobe_operator.reports.open_reports import MAX_MESSAGE, RESULTS, open_report
from tests.support import definitions
from tests.support.api_server import ApiServer, api_server

NOW = 1_700_000_100
REPORTS = "/apis/openreports.io/v1alpha1/namespaces/default/reports"


def evaluated(path: Path, probe: Any, **counts: int) -> dict[str, Any]:
    """The LatencyReport of a LatencyProbe, each of whose objectives has these counts."""
    with SqliteStore(path, clock=lambda: NOW) as store:
        for objective in objectives(probe) if counts else ():
            coverage = Coverage(seen=sum(counts.values()), measured_ms=60_000, expected_ms=60_000)
            store.add([SliRow(*objective.key, minute=NOW // 60 * 60 - 60, coverage=coverage, **counts)])
        documents.define(store, [probe])
        return documents.evaluate(store, [probe], NOW).report


@pytest.mark.parametrize(
    ("counts", "result", "says"),
    [
        ({"good": 200}, "pass", "Met: 0 of 200 bad; coverage 100 %"),
        ({"good": 1, "bad": 199}, "fail", "Violated: "),
        ({}, "skip", "No data: needs 100 events to judge, has 0"),
    ],
)
def test_each_objective_has_its_verdict_and_the_first_words(
    make: Any, tmp_path: Path, counts: dict[str, int], result: str, says: str
) -> None:
    report = open_report(evaluated(tmp_path / "s", make.probe(), **counts))
    assert owner(report["metadata"]) == "checkout"
    assert (report["metadata"]["name"], report["metadata"]["namespace"]) == ("latencyprobe", "shop")
    assert report["summary"] == {**dict.fromkeys(RESULTS.values(), 0), result: 1}
    (one,) = report["results"]
    assert (one["policy"], one["rule"], one["result"]) == ("checkout", "fast", result)
    assert one["message"].startswith(says)
    assert all(isinstance(value, str) for value in one["properties"].values())
    assert ("sli" in one["properties"]) == bool(counts)


def test_every_state_is_a_result_that_openreports_knows() -> None:
    assert RESULTS.keys() == set(State)
    assert {*RESULTS.values()} == {"pass", "warn", "fail", "error", "skip"}


def test_a_report_changes_only_with_what_it_says(make: Any, tmp_path: Path) -> None:
    report = evaluated(tmp_path / "s", make.probe(), good=200)
    later = report | {"results": [one | {"updated": "2030-01-01T00:00:00Z"} for one in report["results"]]}
    assert open_report(report) == open_report(later)


def test_a_report_is_bounded_whatever_its_latencyreport_says(make: Any, tmp_path: Path) -> None:
    report = evaluated(tmp_path / "s", make.probe(), good=200)
    long = report["results"][0] | {"reason": "\x1b[31m" + "r" * 5_000, "state": "Incomplete"}
    mirrored = open_report(report | {"results": [long] * room.MAX_RESULTS})
    assert {len(one["message"]) for one in mirrored["results"]} == {MAX_MESSAGE}
    assert "\\u001b" not in json.dumps(mirrored)
    assert len(json.dumps(mirrored)) < 512 << 10


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with api_server(tmp_path_factory.mktemp("api")) as it:
        it.define(definitions.open_reports())
        yield it


@pytest.mark.cluster
def test_a_real_api_server_with_the_kind_keeps_every_field(server: ApiServer, make: Any, tmp_path: Path) -> None:
    report = open_report(evaluated(tmp_path / "s", make.probe(namespace="default"), good=1, bad=199))
    status, answer = server.call("POST", f"{REPORTS}?fieldValidation=Strict", report)
    assert status == 201, answer
    assert {name: answer[name] for name in ("source", "summary", "results")} == {
        name: report[name] for name in ("source", "summary", "results")
    }
