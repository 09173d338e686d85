"""kubectl.py: what a cluster says through the user's own kubectl, and its failures in one line of ours."""

import tempfile
from pathlib import Path

import pytest

from latencyprobe import kubectl
from latencyprobe.errors import ClusterError
from tests.support.fake_kubectl import FakeKubectl


def test_what_was_asked_for_is_handed_on(fake_kubectl: FakeKubectl) -> None:
    called = fake_kubectl("echo '{}'")
    assert kubectl.get(["deployment/web", "--namespace", "shop"]) == b"{}\n"
    assert called.read_text() == "get deployment/web --namespace shop --output json --request-timeout=15s\n"


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo 'error: the server is away' >&2; exit 1", "kubectl: error: the server is away: try `kubectl get pods"),
        (
            """printf 'E1123 22:12:52.3 1 a.go:265] "Unhandled"\\nThe connection\\n was refused\\n' >&2; exit 1""",
            "kubectl: The connection was refused: try `kubectl get pods --output json`",
        ),
        ("exit 3", "kubectl: exit code 3: try"),
        ("kill -TERM $$", "kubectl: ended by a signal: Terminated: try"),
        (
            "echo 'The connection was refused - did you specify the right host or port?' >&2; exit 1",
            "kubectl: The connection was refused - did you specify the right host or port? Try `kubectl get pods",
        ),
        ("echo 'Unable to connect.' >&2; exit 1", "kubectl: Unable to connect: try `kubectl get pods"),
    ],
)
def test_what_kubectl_says_is_one_line_and_can_be_tried(fake_kubectl: FakeKubectl, script: str, message: str) -> None:
    fake_kubectl(script)
    with pytest.raises(ClusterError) as told:
        kubectl.get(["pods"])
    assert str(told.value).startswith(message)
    assert "\n" not in str(told.value)


ASKED = 'Get "http://10.0.0.1/api?timeout=15s"'


@pytest.mark.parametrize(
    "logged",
    [
        f"couldn't get current server API group list: {ASKED}: net/http: request canceled (Client.Timeout exceeded)",
        f"""\"Unhandled Error" err="couldn't get current server API group list: {ASKED}: context deadline exceeded\"""",
    ],
    ids=["1.28", "1.33"],
)
def test_server_that_does_not_answer_is_not_asked_again_and_again(fake_kubectl: FakeKubectl, logged: str) -> None:
    """As of kubectl itself, which asks eight times before it says so."""
    fake_kubectl(f"""cat >&2 <<'END'
E1125 21:44:15.359298   32335 memcache.go:265] {logged}
END
exec sleep 3600""")
    with pytest.raises(ClusterError) as told:
        kubectl.get(["pods"])
    said = "kubectl: the API server does not answer within 15 s: try `kubectl get pods --output json`"
    assert str(told.value) == said


def test_what_kubectl_logs_without_end_does_not_stop_it(fake_kubectl: FakeKubectl) -> None:
    fake_kubectl("seq 100000 | sed 's/^/E1125 21:44:15.3 1 a.go:265] /' >&2; seq 100000")
    assert kubectl.get(["pods"]).endswith(b"\n100000\n")


@pytest.mark.parametrize(("instead", "remedy"), [("", "install it"), ("use --store", "install it, or use --store")])
def test_missing_kubectl_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch, instead: str, remedy: str) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(ClusterError) as told:
        kubectl.get(["pods"], instead)
    assert str(told.value) == f"kubectl is not installed: {remedy}"


def test_kubectl_that_may_not_be_run_is_named_with_what_the_kernel_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "kubectl").write_text("no program")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClusterError, match="kubectl does not start: Permission denied: install it, or use --store"):
        kubectl.get(["pods"], "use --store")
    (tmp_path / "kubectl").chmod(0o755)
    with pytest.raises(ClusterError, match="kubectl does not start: Exec format error: install it"):
        kubectl.get(["pods"])


def test_no_folder_for_temporary_files_is_not_taken_for_no_kubectl(
    monkeypatch: pytest.MonkeyPatch, fake_kubectl: FakeKubectl, tmp_path: Path
) -> None:
    fake_kubectl("echo '{}'")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(ClusterError, match=r"no file for what .*: set TMPDIR to a folder to write to"):
        kubectl.get(["pods"])
