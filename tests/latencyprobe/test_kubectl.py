"""kubectl.py: what a cluster says through the user's own kubectl, and its failures in one line of ours."""

import pytest

from latencyprobe import kubectl
from latencyprobe.errors import ClusterError
from tests.support.fake_kubectl import FakeKubectl


def test_what_was_asked_for_is_handed_on(fake_kubectl: FakeKubectl) -> None:
    called = fake_kubectl("echo '{}'")
    assert kubectl.get(["deployment/web", "--namespace", "shop"]) == b"{}\n"
    assert called.read_text() == "get deployment/web --namespace shop --output json\n"


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo 'error: the server is away' >&2; exit 1", "kubectl: error: the server is away: try `kubectl get pods"),
        (
            """printf 'E1123 22:12:52.3 1 a.go:265] "Unhandled"\\nThe connection\\n was refused\\n' >&2; exit 1""",
            "kubectl: The connection was refused: try `kubectl get pods --output json`",
        ),
        ("exit 3", "kubectl: exit code 3: try"),
    ],
)
def test_what_kubectl_says_is_one_line_and_can_be_tried(fake_kubectl: FakeKubectl, script: str, message: str) -> None:
    fake_kubectl(script)
    with pytest.raises(ClusterError) as told:
        kubectl.get(["pods"])
    assert str(told.value).startswith(message)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(("instead", "remedy"), [("", "install it"), ("use --store", "install it, or use --store")])
def test_missing_kubectl_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch, instead: str, remedy: str) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(ClusterError) as told:
        kubectl.get(["pods"], instead)
    assert str(told.value) == f"kubectl is not installed: {remedy}"
