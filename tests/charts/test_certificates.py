"""What the chart takes of the Secrets that it finds in the cluster: the directory's certificate and its authority."""

import base64
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.charts.lookups import looked_up

pytestmark = pytest.mark.cluster

NAME = "lp-latencyprobe-tls"
ISSUER = {"certManager": {"issuerRef": {"name": "corporate"}}}
OWNED = {"meta.helm.sh/release-name": "lp", "meta.helm.sh/release-namespace": "watch"}
Render = Callable[..., Any]


class Release:
    """Renders the chart with these values of `tls` where the Secrets of the rendering before are, as Helm has them."""

    def __init__(self, render: Render, url: str, secrets: dict[str, Any]) -> None:
        self._render, self._url, self._secrets = render, url, secrets

    def upgrade(self, **tls: Any) -> Any:
        server = ("--dry-run=server", "--disable-openapi-validation", "--kube-apiserver", self._url)
        rendered = self._render(arguments=server, tls=tls, crds={"install": False})
        made = {one["metadata"]["name"]: one for one in rendered if one["kind"] == "Secret"}
        for one in made.values():
            one["metadata"]["annotations"] = OWNED
        self._secrets |= made
        return rendered

    def put(self, authority: str) -> None:
        """cert-manager makes the Secret."""
        data = {"ca.crt": base64.b64encode(authority.encode()).decode()}
        self._secrets[NAME] = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": NAME}, "data": data}


@pytest.fixture
def release(render: Render) -> Iterator[Release]:
    secrets: dict[str, Any] = {}
    with looked_up(secrets) as url:
        yield Release(render, url, secrets)


def authority(rendered: Any) -> str:
    """Return what the agents trust."""
    return str(rendered.one("ConfigMap")["data"]["ca.crt"])


def test_certificate_that_the_chart_made_stays_with_its_authority(release: Release) -> None:
    made, later = release.upgrade(), release.upgrade()

    assert later.one("Secret")["data"] == made.one("Secret")["data"]
    assert base64.b64decode(made.one("Secret")["data"]["ca.crt"]).decode() == authority(made) == authority(later)


def test_authority_beside_a_certificate_that_the_chart_makes_is_refused(release: Release) -> None:
    """Agents would trust it after the next upgrade, and it signed nothing."""
    for _ in range(2):
        with pytest.raises(AssertionError, match=rf"tls\.ca is the authority of .* Secret {NAME}"):
            release.upgrade(ca="CA")
        release.upgrade()


def test_an_issuers_authority_is_not_that_of_the_certificate_that_the_chart_made_before(release: Release) -> None:
    release.upgrade()

    with pytest.raises(AssertionError, match=r"tls\.ca: the certificate authority"):
        release.upgrade(**ISSUER)
    assert authority(release.upgrade(ca="CORPORATE", **ISSUER)) == "CORPORATE"
    release.put("CORPORATE")
    assert authority(release.upgrade(**ISSUER)) == "CORPORATE"
