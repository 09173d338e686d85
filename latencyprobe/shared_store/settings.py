"""Which server the shared store is, and how it is asked: by the administrator's word alone."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit, urlunsplit

import msgspec

from latencyprobe.errors import LatencyProbeError
from latencyprobe.headers import headers

PREFIX = "LATENCYPROBE_PROMETHEUS_"
TIMEOUT_S = 10.0


class Settings(msgspec.Struct, frozen=True):
    """`url`: what stands before /api/v1, as http://mimir:8080/prometheus. `headers`: sent with each question, such as a
    tenant's. `token_file`: a bearer token, read for each question; `ca_file`: whom to trust, if not the system's."""

    url: str
    headers: dict[str, str] = {}
    token_file: Path | None = None
    ca_file: Path | None = None
    timeout_s: float = TIMEOUT_S

    @classmethod
    def of(cls, url: str, environment: Mapping[str, str] = os.environ) -> Self:
        """Return the settings of a URL and of LATENCYPROBE_PROMETHEUS_HEADERS (as OTEL_EXPORTER_OTLP_HEADERS:
        `name=value`, by commas, percent-encoded), _TOKEN_FILE, _CA_FILE and _TIMEOUT (seconds).

        Raises LatencyProbeError naming what is wrong.
        """
        timeout = environment.get(f"{PREFIX}TIMEOUT", "") or str(TIMEOUT_S)
        if not re.fullmatch(r"\d+(\.\d+)?", timeout) or not 0.1 <= float(timeout) <= 60:
            raise LatencyProbeError(f"{PREFIX}TIMEOUT: {timeout!r} is no number of seconds from 0.1 to 60")
        token, ca = environment.get(f"{PREFIX}TOKEN_FILE"), environment.get(f"{PREFIX}CA_FILE")
        return cls(
            _checked(url),
            _headers(environment.get(f"{PREFIX}HEADERS", "")),
            *(Path(token) if token else None, Path(ca) if ca else None),
            float(timeout),
        )


def _checked(url: str) -> str:
    try:
        parts = urlsplit(url)
        wrong = parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0
    except ValueError:
        parts, wrong = urlsplit(""), True
    if wrong or not url.isprintable() or " " in url:
        raise LatencyProbeError(f"{url!r} is no address of a Prometheus: write http://HOST:9090")
    if parts.username is not None or parts.password is not None:
        why = "others would see it in logs and statuses"
        raise LatencyProbeError(f"the address of the Prometheus holds a password, and {why}: use {PREFIX}TOKEN_FILE")
    if parts.query or parts.fragment:
        raise LatencyProbeError(f"{url!r}: leave out what follows the path: write http://HOST:9090")
    path = parts.path.rstrip("/").removesuffix("/api/v1")
    return urlunsplit((parts.scheme, parts.netloc, path, "", ""))


def _headers(text: str) -> dict[str, str]:
    try:
        return headers(text)
    except ValueError as error:
        raise LatencyProbeError(f"{PREFIX}HEADERS: {error}") from error
