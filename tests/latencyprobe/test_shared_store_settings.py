"""Which server is asked, and with what: from a URL and the environment, each mistake named."""

from pathlib import Path

import pytest

from latencyprobe.errors import LatencyProbeError
from latencyprobe.shared_store.settings import PREFIX, Settings


@pytest.mark.parametrize(
    ("url", "asked"),
    [
        ("http://prometheus:9090", "http://prometheus:9090"),
        ("http://prometheus:9090/", "http://prometheus:9090"),
        ("https://mimir/prometheus/api/v1", "https://mimir/prometheus"),
        ("http://[::1]:8481/select/0/prometheus/", "http://[::1]:8481/select/0/prometheus"),
    ],
)
def test_a_url_is_what_api_v1_follows(url: str, asked: str) -> None:
    assert Settings.of(url, {}).url == asked


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("prometheus:9090", "write http://HOST:9090"),
        ("ftp://prometheus", "write http://HOST:9090"),
        ("http://", "write http://HOST:9090"),
        ("http://a b", "write http://HOST:9090"),
        ("http://a\n:9090", "write http://HOST:9090"),
        ("http://a:port", "write http://HOST:9090"),
        ("http://[::1", "write http://HOST:9090"),
        ("http://me:secret@prometheus:9090", "TOKEN_FILE"),
        ("http://prometheus:9090?query=up", "leave out what follows the path"),
    ],
)
def test_a_wrong_url_is_refused(url: str, told: str) -> None:
    with pytest.raises(LatencyProbeError, match=told) as raised:
        Settings.of(url, {})
    assert "secret" not in str(raised.value)


def test_the_environment_has_the_rest() -> None:
    environment = {
        f"{PREFIX}HEADERS": "X-Scope-OrgID=team%20a, X-Other = b",
        f"{PREFIX}TOKEN_FILE": "/run/token",
        f"{PREFIX}CA_FILE": "/run/ca.crt",
        f"{PREFIX}TIMEOUT": "2.5",
    }
    found = Settings.of("http://a", environment)
    assert found == Settings(
        "http://a", {"X-Scope-OrgID": "team a", "X-Other": "b"}, Path("/run/token"), Path("/run/ca.crt"), 2.5
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HEADERS", "X-Scope-OrgID"),
        ("TIMEOUT", "soon"),
        ("TIMEOUT", "0"),
        ("TIMEOUT", "600"),
    ],
)
def test_a_wrong_setting_is_refused_by_its_name(name: str, value: str) -> None:
    with pytest.raises(LatencyProbeError, match=f"{PREFIX}{name}"):
        Settings.of("http://a", {f"{PREFIX}{name}": value})
