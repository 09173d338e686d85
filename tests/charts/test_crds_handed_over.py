"""Helm on a real API server: the CRDs of a running release change hands, and no LatencyProbe goes with them."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from latencyprobe.api import API_VERSION
from tests.charts.conftest import CHART
from tests.support.api_server import CRDS, ApiServer, api_server
from tests.support.waiting import wait_until

pytestmark = pytest.mark.cluster

Helm = Callable[..., Any]
Upgrade = Callable[..., Any]
NAME = "latencyprobes.latencyprobe.dev"
PROBES = f"/apis/{API_VERSION}/namespaces/default/latencyprobes"
PROBE = {"apiVersion": API_VERSION, "kind": "LatencyProbe", "metadata": {"name": "shop"}}
SPEC = {"targets": [{"name": "rpc", "ports": [80]}]}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """One without the CRDs."""
    with api_server(tmp_path_factory.mktemp("api")) as it:
        for one in it.call("GET", CRDS)[1]["items"]:
            it.call("DELETE", f"{CRDS}/{one['metadata']['name']}")
        wait_until(lambda: not it.call("GET", CRDS)[1]["items"], "the CRDs are gone", 30)
        yield it


@pytest.fixture(scope="module")
def upgrade(server: ApiServer, helm: Helm) -> Upgrade:
    """`helm upgrade --install` with these values of `crds` beside those of before."""

    def run(**crds: bool) -> Any:
        words = [word for name, value in crds.items() for word in ("--set", f"crds.{name}={str(value).lower()}")]
        return helm(
            *("upgrade", "--install", "lp", CHART, "--kubeconfig", server.kubeconfig, "--namespace", "default"),
            *("--reset-then-reuse-values", *words),
            check=False,
        )

    return run


@pytest.mark.timeout(900)
def test_a_release_lets_go_of_its_crds_only_once_they_are_kept(server: ApiServer, upgrade: Upgrade) -> None:
    assert upgrade().returncode == 0
    wait_until(lambda: server.call("GET", PROBES)[0] == 200, "LatencyProbes are served", 30)
    uid = server.create(PROBES, PROBE | {"spec": SPEC})["metadata"]["uid"]

    for together in ({"install": False}, {"install": False, "keep": True}):
        refused = upgrade(**together)
        assert refused.returncode != 0
        assert f"crds.install: false would have Helm delete CustomResourceDefinition {NAME}" in refused.stderr
        assert "crds.keep=true" in refused.stderr
    for step in ({"keep": True}, {"install": False}, {}):
        done = upgrade(**step)
        assert done.returncode == 0, done.stderr

    assert server.call("GET", f"{PROBES}/shop")[1]["metadata"]["uid"] == uid
    assert "deletionTimestamp" not in server.call("GET", f"{CRDS}/{NAME}")[1]["metadata"]
