from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.cluster

REPOSITORY = Path(__file__).parents[2]
CHART = REPOSITORY / "charts" / "latencyprobe"
Render = Callable[..., Any]
Helm = Callable[..., Any]


def test_nothing_is_made_where_it_could_not_be_found_again(helm: Helm) -> None:
    done = helm("template", "lp", CHART, check=False)

    assert done.returncode != 0
    for way_out in ("tls.existingSecret", "tls.certManager.issuerRef", "tls.ca", "pairing.existingSecret"):
        assert way_out in done.stderr


@pytest.mark.parametrize("missing", ["tls", "pairing"])
def test_both_secrets_are_asked_for(render: Render, missing: str) -> None:
    with pytest.raises(AssertionError, match=f"{missing}.existingSecret"):
        render(**{missing: {}})


def test_existing_tls_secret_needs_the_authority_that_agents_trust(render: Render) -> None:
    with pytest.raises(AssertionError, match=r"tls\.ca: the certificate authority"):
        render(tls={"existingSecret": "given-tls"})


def test_authority_that_somebody_else_provides_is_mounted_and_no_other_is_made(render: Render) -> None:
    manifests = render(tls={"existingSecret": "given-tls", "caConfigMap": "given-ca"})
    volumes = {v["name"]: v for v in manifests.one("DaemonSet")["spec"]["template"]["spec"]["volumes"]}

    assert [m for m in manifests if m["kind"] == "ConfigMap"] == []
    assert volumes["ca"]["configMap"] == {"name": "given-ca"}


def test_existing_secrets_are_mounted_and_no_other_is_made(manifests: Any) -> None:
    volumes = {v["name"]: v for v in manifests.one("Deployment")["spec"]["template"]["spec"]["volumes"]}

    assert [m for m in manifests if m["kind"] == "Secret"] == []
    assert volumes["tls"]["secret"]["secretName"] == "given-tls"
    assert volumes["pair"]["secret"]["secretName"] == "given-pair"
    assert manifests.one("ConfigMap")["data"] == {"ca.crt": "GIVEN CA"}
    assert manifests.one("ConfigMap")["metadata"]["namespace"] == "lp-agents"


def test_cert_manager_issues_for_the_name_that_agents_dial(render: Render) -> None:
    issuer = {"kind": "ClusterIssuer", "name": "internal"}
    manifests = render(tls={"ca": "CA", "certManager": {"issuerRef": issuer}})
    certificate = manifests.one("Certificate")["spec"]
    volumes = {v["name"]: v for v in manifests.one("Deployment")["spec"]["template"]["spec"]["volumes"]}

    assert certificate["issuerRef"] == issuer
    assert certificate["dnsNames"] == ["lp-latencyprobe-directory.watch.svc"]
    assert certificate["secretName"] == volumes["tls"]["secret"]["secretName"]
