"""report/kubectl.py: LatencyReports through the user's own kubectl, here a script of that name."""

from pathlib import Path

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
    found = kubectl.reports(None)
    assert ["bank", "shop"] == [report.metadata.namespace for report in found]
    assert build.build(store, store.objectives(), NOW).results == found[0].results
    assert (
        "get latencyreports.latencyprobe.dev --all-namespaces --output json --request-timeout=15s\n"
        == called.read_text()
    )


def test_namespace_is_handed_on(tmp_path: Path, store: SqliteStore, fake_kubectl: FakeKubectl) -> None:
    called = fake_kubectl(listed(tmp_path, store))
    assert () == kubectl.reports("shop")
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
    assert kubectl.reports("shop")[0].results[0].target == "web\ufffd]0;mine\ufffd\ufffd"


def test_report_of_another_version_is_said_to_be_one(fake_kubectl: FakeKubectl) -> None:
    fake_kubectl("""echo '{"items": [{"kind": "LatencyReport"}]}'""")
    with pytest.raises(ClusterError, match="another version"):
        kubectl.reports(None)
