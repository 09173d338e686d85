"""Where telemetry goes: the standard OTEL_EXPORTER_OTLP_* variables, read once and checked before anything is measured.

Without HTTP or protobuf on purpose: this is imported before the programs are attached, `otlp.py` only afterwards.
Source: OpenTelemetry specification, "OTLP exporter configuration". Times are in ms there.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

from latencyprobe.headers import headers
from latencyprobe_agent.config import ConfigError

OtlpSignal = Literal["traces", "metrics"]
_SIGNALS: tuple[OtlpSignal, ...] = ("traces", "metrics")
_PREFIX = "OTEL_EXPORTER_OTLP_"


class Settings(NamedTuple):
    """Where and how one OTLP signal is sent. `url`: for HTTP with the signal's path."""

    signal: OtlpSignal
    protocol: str
    url: str
    headers: dict[str, str]
    timeout_s: float
    compression: str
    ca_file: str | None
    certificate: str | None
    key: str | None
    insecure: bool


def endpoints(environ: Mapping[str, str], endpoint: str | None = None) -> tuple[Settings, ...]:
    """Return how each requested OTLP signal is sent; none without an endpoint. `endpoint`: of a flag, which wins.

    Raises ConfigError naming the variable and its value; of headers the value is left out, for it may be a secret.
    """
    return tuple(_settings(signal, environ, endpoint) for signal in _SIGNALS if _requested(signal, environ, endpoint))


def delta_requested(environ: Mapping[str, str]) -> bool:
    """Return whether metrics shall be differences instead of running totals."""
    preference = environ.get(_PREFIX + "METRICS_TEMPORALITY_PREFERENCE", "cumulative").lower()
    return preference in ("delta", "lowmemory")


def _requested(signal: OtlpSignal, environ: Mapping[str, str], endpoint: str | None) -> bool:
    """Return whether this OTLP signal is asked for: without an endpoint nothing is exported."""
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    if environ.get(f"OTEL_{signal.upper()}_EXPORTER", "otlp") == "none":
        return False
    own = f"{_PREFIX}{signal.upper()}_ENDPOINT"
    return bool(endpoint or environ.get(_PREFIX + "ENDPOINT") or environ.get(own))


def _settings(signal: OtlpSignal, environ: Mapping[str, str], endpoint: str | None) -> Settings:
    def read(name: str, default: str = "") -> str:
        return environ.get(f"{_PREFIX}{signal.upper()}_{name}") or environ.get(_PREFIX + name) or default

    protocol = read("PROTOCOL", "http/protobuf")
    if protocol not in ("http/protobuf", "grpc"):
        raise ConfigError(f"{_PREFIX}PROTOCOL: {protocol!r} is not supported: use http/protobuf or grpc")
    own = None if endpoint else environ.get(f"{_PREFIX}{signal.upper()}_ENDPOINT")
    base = own or endpoint or read("ENDPOINT")
    if "://" not in base and protocol == "grpc":
        base = f"{'http' if read('INSECURE').lower() == 'true' else 'https'}://{base}"  # for gRPC it may be left out
    parts = urlsplit(base)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"OTLP endpoint {base!r}: not an http or https URL such as http://localhost:4318")
    if not own and parts.path.rstrip("/").endswith(tuple(f"/v1/{each}" for each in _SIGNALS)):
        of_all = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/').rpartition('/v1/')[0]}"
        raise ConfigError(f"OTLP endpoint {base!r}: the path of a signal is added to it: give {of_all}")
    compression = read("COMPRESSION", "none")
    if compression not in ("none", "gzip", "deflate"):
        raise ConfigError(f"{_PREFIX}COMPRESSION: {compression!r} is not supported: use gzip, deflate or none")
    timeout = read("TIMEOUT", "10000")
    if not timeout.isdecimal() or int(timeout) == 0:
        raise ConfigError(f"{_PREFIX}TIMEOUT: {timeout!r} is no number of milliseconds")
    for name in ("CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY"):
        if (path := read(name)) and not Path(path).is_file():
            raise ConfigError(f"{_PREFIX}{name}: {path}: no such file")
    return Settings(
        signal=signal,
        protocol=protocol,
        url=base if own or protocol == "grpc" else f"{base.rstrip('/')}/v1/{signal}",
        headers=_headers(read("HEADERS")),
        timeout_s=int(timeout) / 1000,
        compression=compression,
        ca_file=read("CERTIFICATE") or None,
        certificate=read("CLIENT_CERTIFICATE") or None,
        key=read("CLIENT_KEY") or None,
        insecure=parts.scheme == "http",
    )


def _headers(text: str) -> dict[str, str]:
    """Return headers by names in lower case, which gRPC wants."""
    try:
        return {name.lower(): value for name, value in headers(text).items()}
    except ValueError as error:
        raise ConfigError(f"{_PREFIX}HEADERS: {error}") from error
