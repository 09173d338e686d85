"""LatencyReports as the API server gets them."""

from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from latencyprobe.report.headline import STALE_S
from latencyprobe.report.model import LatencyReport
from latencyprobe.sli import Coverage, SliRow
from latencyprobe.slo.objective import objectives
from latencyprobe.slo.windows import MINUTE_S
from latencyprobe.store import SqliteStore
from latencyprobe_operator.reports import documents as reports

NOW = 1_700_000_100


def evaluated(path: Path, *probes: Any, good: int = 200, now: int = NOW) -> dict[str, reports.Document]:
    with SqliteStore(path, clock=lambda: now) as store:
        for probe in probes:
            for objective in objectives(probe):
                coverage = Coverage(seen=good, measured_ms=60_000, expected_ms=60_000)
                store.add([SliRow(*objective.key, minute=now // 60 * 60 - 60, good=good, coverage=coverage)])
        reports.define(store, probes)
        return {
            namespace: reports.evaluate(store, owners, now).report
            for namespace, owners in reports.by_namespace(probes).items()
        }


def test_a_report_names_no_more_owners_than_it_has_room_for_and_the_same_each_time() -> None:
    refused = {("shop", f"p{i:04}"): f"uid-{i}" for i in range(5_000)}
    (report,) = reports.without_results(refused).values()
    (again,) = reports.without_results(dict(reversed(refused.items()))).values()
    assert [one["name"] for one in report["metadata"]["ownerReferences"]] == [f"p{i:04}" for i in range(reports.OWNERS)]
    assert not reports.differs(again, report)


def test_one_report_per_namespace_owned_by_all_its_probes(make: Any, tmp_path: Path) -> None:
    found = evaluated(tmp_path / "s", make.probe("a"), make.probe("b"), make.probe("c", namespace="bank"))
    assert set(found) == {"shop", "bank"}
    owners = found["shop"]["metadata"]["ownerReferences"]
    assert [(o["kind"], o["name"], o["uid"]) for o in owners] == [
        ("LatencyProbe", "a", "uid-shop-a"),
        ("LatencyProbe", "b", "uid-shop-b"),
    ]
    assert not any("controller" in o or "blockOwnerDeletion" in o for o in owners)
    assert [r["probe"] for r in found["bank"]["results"]] == ["c"]
    assert "bank" not in str(found["shop"])


def test_report_has_name_kind_and_verdict(make: Any, tmp_path: Path) -> None:
    report = evaluated(tmp_path / "s", make.probe())["shop"]
    assert (report["kind"], report["metadata"]["name"]) == ("LatencyReport", "latency")
    assert [(r["objective"], r["state"], r["events"]) for r in report["results"]] == [("fast", "Met", 200)]


def test_report_of_refused_latencyprobes_is_as_of_one_without_objectives(make: Any, tmp_path: Path) -> None:
    probes = make.probe("a", objectives=[]), make.probe("b", objectives=[]), make.probe("c", "bank", objectives=[])
    refused = {(one.namespace, one.name): one.uid for one in probes}
    assert reports.without_results(refused) == evaluated(tmp_path / "s", *probes)


def test_report_says_which_version_of_the_operator_made_it_and_readers_keep_it(make: Any, tmp_path: Path) -> None:
    report = evaluated(tmp_path / "s", make.probe())["shop"]
    assert report["madeBy"] == f"latencyprobe {version('latencyprobe')}"
    assert msgspec.to_builtins(msgspec.convert(report, LatencyReport))["madeBy"] == report["madeBy"]


def test_report_differs_by_its_figures_and_not_by_its_time(make: Any, tmp_path: Path) -> None:
    first = evaluated(tmp_path / "s1", make.probe())["shop"]
    with SqliteStore(tmp_path / "s1", clock=lambda: NOW + 20) as store:
        later = reports.evaluate(store, [make.probe()], NOW + 20).report
    more = evaluated(tmp_path / "s2", make.probe(), good=300)["shop"]
    assert first["results"][0]["updated"] != later["results"][0]["updated"]
    assert not reports.differs(later, first)
    assert reports.differs(more, first)
    assert reports.differs(first, None)


def test_report_that_stays_the_same_is_written_before_a_reader_warns(make: Any, tmp_path: Path) -> None:
    first = evaluated(tmp_path / "s", make.probe())["shop"]
    with SqliteStore(tmp_path / "s", clock=lambda: NOW + 120) as store:
        after = {s: reports.evaluate(store, [make.probe()], NOW + s).report for s in (60, 120)}
    assert {60: False, 120: True} == {s: reports.differs(one, first) for s, one in after.items()}
    assert reports.RENEW_NS // 10**9 + MINUTE_S < STALE_S, "with a late evaluation"


def test_definitions_follow_the_probes(make: Any, tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "s") as store:
        reports.define(store, [make.probe("a"), make.probe("b")])
        assert [o.key.probe for o in store.objectives()] == ["a", "b"]
        reports.define(store, [make.probe("b")])
        assert [o.key.probe for o in store.objectives()] == ["b"]
        reports.define(store, [])
        assert store.objectives() == ()


def test_report_of_a_clock_that_was_ahead_is_written_again_when_it_is_right(make: Any, tmp_path: Path) -> None:
    right = evaluated(tmp_path / "s", make.probe())["shop"]
    with SqliteStore(tmp_path / "s", clock=lambda: NOW + 120) as store:
        ahead = reports.evaluate(store, [make.probe()], NOW + 120).report
    assert reports.differs(right, ahead)
