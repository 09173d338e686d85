"""The chart for who installs without Helm: `make manifests`, and the Secrets that go with it."""

import base64
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.charts.schemas import REPOSITORY, Conform

pytestmark = pytest.mark.cluster

Objects = list[dict[str, Any]]


def printed(*command: str | Path) -> str:
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def names(objects: Objects, kind: str) -> set[tuple[str, str]]:
    return {(m["metadata"].get("namespace", ""), m["metadata"]["name"]) for m in objects if m["kind"] == kind}


@pytest.fixture(scope="module")
def plain() -> str:
    return printed("scripts/manifests")


@pytest.fixture(scope="module")
def objects(plain: str) -> Objects:
    return [one for one in yaml.safe_load_all(plain) if one]


@pytest.fixture(scope="module")
def secrets() -> str:
    return printed("sh", "examples/plain/secrets.sh")


def test_two_renderings_are_the_same_bits(plain: str) -> None:
    assert printed("scripts/manifests") == plain


def test_kubernetes_knows_every_field(plain: str, secrets: str, conform: Conform) -> None:
    conform(plain)
    conform(secrets)


def test_each_object_comes_after_the_namespace_that_it_is_in(objects: Objects) -> None:
    seen: set[str] = set()
    for one in objects:
        assert one["metadata"].get("namespace") in seen | {None}, f"{one['kind']} {one['metadata']['name']}"
        seen |= {one["metadata"]["name"]} if one["kind"] == "Namespace" else set()
    assert seen == {"latencyprobe", "latencyprobe-agents"}


def test_nothing_waits_for_helm_or_claims_to_be_its(objects: Objects) -> None:
    told = {
        key
        for one in objects
        for key in [*one["metadata"].get("annotations", {}), *one["metadata"].get("labels", {})]
        if key.startswith("helm.sh/") or key == "app.kubernetes.io/managed-by"
    }

    assert told == set()
    assert {"Job", "Pod", "LatencyProbe"} & {one["kind"] for one in objects} == set()


def test_it_is_what_the_chart_installs_but_for_hooks(
    objects: Objects, render: Callable[..., Objects], plain: str
) -> None:
    def known(found: Objects) -> set[tuple[str, str]]:
        return {(m["kind"], m["metadata"]["name"]) for m in found if "helm.sh/hook" not in str(m["metadata"])}

    chart = known(render("latencyprobe"))
    assert known(objects) == chart - {("ConfigMap", "latencyprobe-ca")} | {("Namespace", "latencyprobe")}


def test_values_can_be_given(objects: Objects) -> None:
    other = printed("scripts/manifests", "--set", "otlp.endpoint=http://c:4318,agent.image.registry=here:5000")

    assert "image: here:5000/latencyprobe/agent:" in other
    assert 'value: "http://c:4318"' in other


def test_secrets_are_those_that_the_pods_wait_for(objects: Objects, secrets: str) -> None:
    made = list(yaml.safe_load_all(secrets))
    waited = {
        (one["metadata"]["namespace"], volume[kind].get("secretName") or volume[kind]["name"])
        for one in objects
        if one["kind"] in {"DaemonSet", "Deployment"}
        for volume in one["spec"]["template"]["spec"]["volumes"]
        for kind in ("secret", "configMap")
        if kind in volume
    }

    assert waited == names(made, "Secret") | names(made, "ConfigMap")
    assert not waited & (names(objects, "Secret") | names(objects, "ConfigMap"))
    assert len(base64.b64decode(made[1]["data"]["key"])) == 32
    assert secrets != printed("sh", "examples/plain/secrets.sh")


def test_agents_believe_the_certificate_by_the_name_that_they_dial(
    objects: Objects, secrets: str, tmp_path: Path
) -> None:
    tls, _, authority = yaml.safe_load_all(secrets)
    for name in ("tls.crt", "tls.key"):
        (tmp_path / name).write_bytes(base64.b64decode(tls["data"][name]))
    (service,) = names(objects, "Service")
    dialled = f"{service[1]}.{service[0]}.svc"
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    client = ssl.create_default_context(cadata=authority["data"]["ca.crt"])
    client.verify_flags |= ssl.VERIFY_X509_STRICT  # as Python does by itself from 3.13 on

    shake_hands(client, server, dialled)
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake_hands(client, server, "elsewhere.latencyprobe.svc")


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext, name: str) -> None:
    """A TLS handshake in memory; what the client does not believe is raised."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(down, up, server_hostname=name), server.wrap_bio(up, down, server_side=True)]
    while ends:
        waiting = []
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                waiting.append(end)
        ends = waiting
