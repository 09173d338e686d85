"""report/kubectl.py: LatencyReports through the user's own kubectl, here a script of that name."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from latencyprobe.errors import ClusterError
from latencyprobe.report import build, kubectl
from latencyprobe.store import SqliteStore

NOW = 1_790_000_000 // 60 * 60
Kubectl = Callable[[str], Path]


@pytest.fixture
def fake_kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kubectl:
    """Put a shell script named kubectl on the PATH; it also writes down its arguments."""

    def install(script: str) -> Path:
        called = tmp_path / "called"
        program = tmp_path / "bin" / "kubectl"
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\necho \"$@\" > '{called}'\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(program.parent), prepend=":")
        return called

    return install


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


def test_reports_come_by_namespace(tmp_path: Path, store: SqliteStore, fake_kubectl: Kubectl) -> None:
    called = fake_kubectl(listed(tmp_path, store, "shop", "bank"))
    found = kubectl.reports(None)
    assert ["bank", "shop"] == [report.metadata.namespace for report in found]
    assert build.build(store, store.objectives(), NOW).results == found[0].results
    assert "get latencyreports.latencyprobe.dev --all-namespaces --output json\n" == called.read_text()


def test_namespace_is_handed_on(tmp_path: Path, store: SqliteStore, fake_kubectl: Kubectl) -> None:
    called = fake_kubectl(listed(tmp_path, store))
    assert () == kubectl.reports("shop")
    assert "get latencyreports.latencyprobe.dev --namespace shop --output json\n" == called.read_text()


def test_what_kubectl_says_is_passed_on(fake_kubectl: Kubectl) -> None:
    fake_kubectl("echo 'error: the server is away' >&2; exit 1")
    with pytest.raises(ClusterError, match="kubectl: error: the server is away: try `kubectl get"):
        kubectl.reports(None)


def test_report_of_another_version_is_said_to_be_one(fake_kubectl: Kubectl) -> None:
    fake_kubectl("""echo '{"items": [{"kind": "LatencyReport"}]}'""")
    with pytest.raises(ClusterError, match="another version"):
        kubectl.reports(None)


def test_missing_kubectl_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(ClusterError, match="kubectl is not installed"):
        kubectl.reports(None)
