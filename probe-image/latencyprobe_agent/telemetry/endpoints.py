"""Where telemetry goes: the standard OTEL_EXPORTER_OTLP_* variables, read once and checked before anything is measured.

Without HTTP or protobuf on purpose: this is imported before the programs are attached, `otlp.py` only afterwards.
Source: OpenTelemetry specification, "OTLP exporter configuration". Times are in ms there.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import SplitResult, urlsplit

from latencyprobe.headers import headers
from latencyprobe_agent.config import ConfigError

OtlpSignal = Literal["traces", "metrics"]
_SIGNALS: tuple[OtlpSignal, ...] = ("traces", "metrics")
_PREFIX = "OTEL_EXPORTER_OTLP_"
_TIMEOUT_DIGITS = 9  # eleven days; a socket can wait for no more than some centuries


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

    Raises nothing but ConfigError, naming the variable and its value; of headers the value is left out, and where a key
    itself stands for its path, for they may be secrets.
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
    def variable(name: str) -> str:
        own = f"{_PREFIX}{signal.upper()}_{name}"
        return own if environ.get(own) else _PREFIX + name

    def read(name: str, default: str = "") -> str:
        return environ.get(variable(name)) or default

    protocol = read("PROTOCOL", "http/protobuf")
    if protocol not in ("http/protobuf", "grpc"):
        raise ConfigError(f"{_PREFIX}PROTOCOL: {protocol!r} is not supported: use http/protobuf or grpc")
    base, said_by = (endpoint, "--otlp") if endpoint else (read("ENDPOINT"), variable("ENDPOINT"))
    own = said_by not in ("--otlp", _PREFIX + "ENDPOINT")
    if "://" not in base and protocol == "grpc":
        base = f"{'http' if read('INSECURE').lower() == 'true' else 'https'}://{base}"  # for gRPC it may be left out
    parts = _parts(base, said_by)
    if not own and parts.path.rstrip("/").endswith(tuple(f"/v1/{each}" for each in _SIGNALS)):
        of_all = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/').rpartition('/v1/')[0]}"
        raise ConfigError(f"{said_by}: {base!r}: the path of a signal is added to it: give {of_all}")
    compression = read("COMPRESSION", "none")
    if compression not in ("none", "gzip", "deflate"):
        raise ConfigError(f"{_PREFIX}COMPRESSION: {compression!r} is not supported: use gzip, deflate or none")
    timeout = read("TIMEOUT", "10000")
    if not timeout.isdecimal() or len(timeout) > _TIMEOUT_DIGITS or int(timeout) == 0:
        raise ConfigError(f"{_PREFIX}TIMEOUT: {timeout!r} is no number of milliseconds")
    ca_file, certificate, key = (
        _file(read(name), variable(name)) for name in ("CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY")
    )
    return Settings(
        signal=signal,
        protocol=protocol,
        url=base if own or protocol == "grpc" else f"{base.rstrip('/')}/v1/{signal}",
        headers=_headers(read("HEADERS")),
        timeout_s=int(timeout) / 1000,
        compression=compression,
        ca_file=ca_file,
        certificate=certificate,
        key=key,
        insecure=parts.scheme == "http",
    )


def _parts(url: str, said_by: str) -> SplitResult:
    """Return the parts of an endpoint. `said_by`: the variable or flag."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # a bracket is missing, or the port is none
        usable = False
    if not usable:
        raise ConfigError(f"{said_by}: {url!r} is no http or https URL such as http://localhost:4318")
    return parts


def _file(path: str, variable: str) -> str | None:
    """Return the path of a file, None where none is given. A key may have been put in its place: that is not said."""
    if not path:
        return None
    if not os.access(path, os.R_OK) or not Path(path).is_file():  # alone the latter raises on too long a name
        said = path if path.isprintable() and "-----BEGIN" not in path else "a text, where a path should be"
        raise ConfigError(f"{variable}: {said}: no file that can be read")
    return path


def _headers(text: str) -> dict[str, str]:
    """Return headers by names in lower case, which gRPC wants."""
    try:
        return {name.lower(): value for name, value in headers(text).items()}
    except ValueError as error:
        raise ConfigError(f"{_PREFIX}HEADERS: {error}") from error
