"""report/kubectl.py: LatencyReports through the user's own kubectl, here a script of that name."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from latencyprobe.errors import ClusterError
from latencyprobe.report import build, kubectl
from latencyprobe.store import SqliteStore
from tests.support.fake_kubectl import FakeKubectl

NOW = 1_790_000_000 // 60 * 60


def listed(tmp_path: Path, store: SqliteStore, *namespaces: str) -> str:
    report = build.build(store, store.objectives(), NOW)
    items = []
    for namespace in namespaces:
        item = msgspec.to_builtins(build.document(namespace, report))
        item["metadata"] |= {"uid": "1", "ownerReferences": [{"kind": "LatencyProbe"}], "managedFields": []}
        items.append(item)
    file = tmp_path / "list.json"
    file.write_bytes(msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": items}))
    return f"/bin/cat '{file}'"


def test_reports_come_by_namespace(tmp_path: Path, store: SqliteStore, fake_kubectl: FakeKubectl) -> None:
    called = fake_kubectl(listed(tmp_path, store, "shop", "bank"))
    found = kubectl.reports(None).reports
    assert ["bank", "shop"] == [report.metadata.namespace for report in found]
    assert build.build(store, store.objectives(), NOW).results == found[0].results
    assert (
        "get latencyreports.latencyprobe.dev --all-namespaces --output json --request-timeout=15s\n"
        == called.read_text()
    )


def test_namespace_is_handed_on(tmp_path: Path, store: SqliteStore, fake_kubectl: FakeKubectl) -> None:
    called = fake_kubectl(listed(tmp_path, store))
    assert kubectl.Read(()) == kubectl.reports("shop")
    assert (
        "get latencyreports.latencyprobe.dev --namespace shop --output json --request-timeout=15s\n"
        == called.read_text()
    )


def test_what_steers_a_terminal_is_taken_out(tmp_path: Path, store: SqliteStore, fake_kubectl: FakeKubectl) -> None:
    """Whoever may do anything in one namespace may have written its report."""
    called = listed(tmp_path, store, "shop")
    file = tmp_path / "list.json"
    document = msgspec.json.decode(file.read_bytes())
    document["items"][0]["results"][0]["target"] = "web\x1b]0;mine\x07\u202e"
    file.write_bytes(msgspec.json.encode(document))
    fake_kubectl(called)
    assert kubectl.reports("shop").reports[0].results[0].target == "web\ufffd]0;mine\ufffd\ufffd"


def test_report_of_another_version_is_said_to_be_one(fake_kubectl: FakeKubectl) -> None:
    fake_kubectl("""echo '{"items": [{"kind": "LatencyReport"}]}'""")
    with pytest.raises(ClusterError, match="another version"):
        kubectl.reports(None)


HOSTILE = {
    "now.p99": ("now", "p99", "soon"),
    "now.peers[0].rate": ("now", "peers", [{"peer": "x", "rate": "NaN", "bad": "0", "p50": "1ms", "p99": "1ms"}]),
    "threshold": ("threshold", None, "1e999999999s"),
    "errorBudgetRemaining": ("errorBudgetRemaining", None, "1e999999"),
    "updated": ("updated", None, "2026-02-30T00:00:00Z"),
    "window": ("window", None, "0d"),
    "causes[0].share": ("causes", None, [{"cause": "x", "time": "1s", "share": "most"}]),
    "slowest[0].traceId": ("slowest", None, [{"traceId": "$(id)", "time": "", "duration": "1s", "stages": []}]),
}


def spoiled(result: dict[str, Any], field: str) -> None:
    """Write into a result what no operator writes."""
    name, inner, value = HOSTILE[field]
    if inner is None:
        result[name] = value
    else:
        full = {"over": "5m", "rate": "1", "bad": "0", "p50": "1ms", "p99": "1ms"}
        result[name] = full | {inner: value}


@pytest.mark.parametrize("field", HOSTILE)
def test_one_whose_numbers_are_none_is_refused_by_its_field_and_hides_no_other(
    field: str, tmp_path: Path, store: SqliteStore, fake_kubectl: FakeKubectl
) -> None:
    called = listed(tmp_path, store, "shop", "bank")
    file = tmp_path / "list.json"
    document = msgspec.json.decode(file.read_bytes())
    spoiled(document["items"][0]["results"][0], field)
    file.write_bytes(msgspec.json.encode(document))
    fake_kubectl(called)
    found = kubectl.reports(None)
    assert ["bank"] == [report.metadata.namespace for report in found.reports]
    (why,) = found.unread
    assert why.startswith("LatencyReport shop/latency cannot be read: ")
    assert f"results[0].{field}`" in why


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"summary": dict.fromkeys("abcde", 1)}, "shop/latency .*no number of Violated objectives"),
        ({"metadata": {"namespace": "shop", "name": "mine"}}, "shop/mine .*nobody renews this one"),
    ],
)
def test_one_that_no_operator_writes_is_refused(
    changed: dict[str, Any], why: str, tmp_path: Path, store: SqliteStore, fake_kubectl: FakeKubectl
) -> None:
    called = listed(tmp_path, store, "shop")
    file = tmp_path / "list.json"
    document = msgspec.json.decode(file.read_bytes())
    document["items"][0] |= changed
    file.write_bytes(msgspec.json.encode(document))
    fake_kubectl(called)
    with pytest.raises(ClusterError, match=f"LatencyReport {why}"):
        kubectl.reports(None)
