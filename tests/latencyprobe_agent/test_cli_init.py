"""`latencyprobe init`: what it writes can be applied and run as it stands."""

import json

import pytest
import yaml

from latencyprobe import group, parsing
from latencyprobe.plan import Role
from tests.support.fake_kubectl import FakeKubectl

DEPLOYMENT = {
    "kind": "Deployment",
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"spec": {"containers": [{"ports": [{"containerPort": 8080, "name": "http"}]}]}},
    },
}


def run(capfd: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    code = group.run(["init", *args])
    out, err = capfd.readouterr()
    return code, out, err


def test_ports_of_this_host(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capfd, "--port", "6379", "--port", "80", "--threshold", "5ms")
    assert (code, err) == (0, "")
    probe = parsing.parse(yaml.safe_load(out))
    assert [target.ports for target in probe.spec.targets] == [(6379,), (80,)]
    assert {one.threshold for one in probe.spec.objectives} == {"5ms"}
    assert out.startswith("# ")


def test_what_callers_saw_is_asked_for_and_that_is_said_where_it_is_not(capfd: pytest.CaptureFixture[str]) -> None:
    _, alone, _ = run(capfd, "--port", "80")
    code, both, _ = run(capfd, "--port", "80", "--callers")
    assert code == 0
    assert "latencyprobe init --callers" in alone
    assert "--callers" not in both
    sides = [one.perspective for one in parsing.parse(yaml.safe_load(both)).spec.objectives]
    assert sides == [None, Role.CLIENT]


def test_a_workload_of_the_cluster(capfd: pytest.CaptureFixture[str], fake_kubectl: FakeKubectl) -> None:
    called = fake_kubectl(f"echo '{json.dumps(DEPLOYMENT)}'")
    code, out, _ = run(capfd, "deployment/web", "-n", "shop")
    assert code == 0
    assert called.read_text() == "get deployment/web --namespace shop --output json --request-timeout=15s\n"
    probe = parsing.parse(yaml.safe_load(out))
    assert (probe.namespace, probe.name, probe.spec.targets[0].ports) == ("shop", "web", (8080,))


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        ([], 2, "give KIND/NAME or --port: what to measure; on this host listen: "),
        (["service/web", "--port", "80"], 2, "give KIND/NAME or --port"),
        (["--port", "80", "-n", "shop"], 2, "-n goes with KIND/NAME: ports have no namespace"),
        (["web"], 2, "'web' is no KIND/NAME such as deployment/web"),
        (
            ["--port", "80", "--threshold", "5x"],
            1,
            "spec.objectives[0].threshold: '5x': expected a duration such as 25ms",
        ),
    ],
)
def test_what_cannot_be_written_is_said(
    capfd: pytest.CaptureFixture[str], args: list[str], code: int, message: str
) -> None:
    returned, out, err = run(capfd, *args)
    assert (returned, out) == (code, "")
    assert message in err


@pytest.mark.parametrize(
    ("printed", "why"),
    [
        ("garbage", "malformed"),
        ("", "truncated"),
        ("[]", "Expected `object`"),
        ("{}", "without 'metadata'"),
        (json.dumps({**DEPLOYMENT, "spec": {"selector": {}}}), "without 'template'"),
    ],
)
def test_what_kubectl_prints_and_is_no_object_of_kubernetes_is_said(
    capfd: pytest.CaptureFixture[str], fake_kubectl: FakeKubectl, printed: str, why: str
) -> None:
    fake_kubectl(f"echo '{printed}'")
    code, out, err = run(capfd, "deployment/web")
    assert (1, "", 1) == (code, out, len(err.splitlines()))
    assert "latencyprobe: kubectl printed no object of Kubernetes: " in err
    assert why in err
    assert err.endswith(": see `kubectl get deployment/web --output json`\n")
