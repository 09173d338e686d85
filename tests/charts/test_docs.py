"""The Helm commands of the pages give values that the chart takes."""

import itertools

import pytest

from tests.charts.conftest import CHART, GIVEN, Helm, Manifests, Render
from tests.support.docs import ROOT, Command, commands

pytestmark = pytest.mark.cluster  # Helm
OF_CHART = [
    one for one in commands("helm") if "charts/latencyprobe" in one.words and "FOLDER" not in " ".join(one.words)
]
RUN = {"DaemonSet", "Deployment", "Job", "Pod"}
ONLY_IN_A_CLUSTER = {"--create-namespace", "--reset-then-reuse-values", "--install", "--wait"}


@pytest.mark.parametrize("command", OF_CHART, ids=lambda one: f"{one.page}: {' '.join(one.words)}")
def test_helm_commands_of_the_pages_render(command: Command, helm: Helm, tmp_path: object) -> None:
    words = [word for word in command.words[2:] if word not in ONLY_IN_A_CLUSTER]
    words[words.index("charts/latencyprobe")] = str(CHART)
    given = [
        f"--set={of}.{name}={value}" for of, values in GIVEN.items() for name, value in values.items()
    ]  # without a cluster there are no Secrets to be found
    words = [str(ROOT / word) if word.startswith("examples/") else word for word in words if word != "..."]
    assert "kind: DaemonSet" in helm("template", *words, *given).stdout


def test_openshift_lets_the_accounts_run_whose_pods_name_their_user(render: Render) -> None:
    (command,) = (one for one in commands("oc") if "add-scc-to-user" in one.words)
    named = [account for flag, account in itertools.pairwise(command.words) if flag == "-z"]
    assert sorted(named) == sorted(accounts(render("latencyprobe")))


def accounts(rendered: Manifests) -> set[str]:
    """Those of pods that run as another user than root, by their own words."""
    templates = (one["spec"].get("template", one)["spec"] for one in rendered if one["kind"] in RUN)
    return {pod["serviceAccountName"] for pod in templates if pod["securityContext"]["runAsUser"]}
