"""Where telemetry goes: the standard OTEL_EXPORTER_OTLP_* variables, read once and checked before anything is measured.

Without HTTP or protobuf on purpose: this is imported before the programs are attached, `otlp.py` only afterwards.
Source: OpenTelemetry specification, "OTLP exporter configuration". Times are in ms there.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
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


def delta_requested(environ: Mapping[str, str], exported: Iterable[Settings]) -> bool:
    """Return whether metrics, if they are exported, shall be differences instead of running totals. Raises ConfigError
    naming the variable."""
    if not any(one.signal == "metrics" for one in exported):
        return False
    preference = _choice(_PREFIX + "METRICS_TEMPORALITY_PREFERENCE", environ, ("cumulative", "delta", "lowmemory"))
    return preference != "cumulative"


def _requested(signal: OtlpSignal, environ: Mapping[str, str], endpoint: str | None) -> bool:
    """Return whether this OTLP signal is asked for: without an endpoint nothing is exported."""
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    if not (endpoint or _Variables(signal, environ).read("ENDPOINT")):
        return False
    return _choice(f"OTEL_{signal.upper()}_EXPORTER", environ, ("otlp", "none")) == "otlp"


def _choice(variable: str, environ: Mapping[str, str], values: Sequence[str]) -> str:
    """Return which of the values a variable has, in whatever case; the first where it has none."""
    text = environ.get(variable, "")
    if (chosen := text.strip().lower() or values[0]) not in values:
        raise ConfigError(f"{variable}: {text!r} is not supported: use {', '.join(values[:-1])} or {values[-1]}")
    return chosen


class _Variables(NamedTuple):
    """Those of one OTLP signal: its own, where it is set, wins over that of all."""

    signal: OtlpSignal
    environ: Mapping[str, str]

    def named(self, name: str) -> str:
        """Return the full name of the variable that counts."""
        own = f"{_PREFIX}{self.signal.upper()}_{name}"
        return own if self.environ.get(own) else _PREFIX + name

    def read(self, name: str, default: str = "") -> str:
        """Return what it says."""
        return self.environ.get(self.named(name)) or default

    def choice(self, name: str, values: Sequence[str]) -> str:
        """Return which of the values it has, the first where it has none."""
        return _choice(self.named(name), self.environ, values)

    def file(self, name: str) -> str | None:
        """Return the path of a file that has something, None where none is given."""
        if not (path := self.read(name)):
            return None
        if not os.access(path, os.R_OK) or not Path(path).is_file():  # alone the latter raises on too long a name
            said = path if _is_path(path) else "a text, where a path should be"
            raise ConfigError(f"{self.named(name)}: {said}: no file that can be read")
        if not Path(path).stat().st_size:
            raise ConfigError(f"{self.named(name)}: {path}: an empty file")
        return path


def _is_path(text: str) -> bool:
    """Return whether this may be told as a path: a key is none, in PEM or in base64, which has no dot."""
    return text.isprintable() and "-----BEGIN" not in text and (text.startswith("/") or "." in text)


def _settings(signal: OtlpSignal, environ: Mapping[str, str], endpoint: str | None) -> Settings:
    variables = _Variables(signal, environ)
    protocol = variables.choice("PROTOCOL", ("http/protobuf", "grpc"))
    url = _url(variables, endpoint, protocol)
    timeout = variables.read("TIMEOUT", "10000")
    if not timeout.isdecimal() or len(timeout) > _TIMEOUT_DIGITS or int(timeout) == 0:
        raise ConfigError(f"{variables.named('TIMEOUT')}: {timeout!r} is no number of milliseconds")
    certificate, key = _certificate(variables, protocol)
    return Settings(
        signal=signal,
        protocol=protocol,
        url=url,
        headers=_headers(variables),
        timeout_s=int(timeout) / 1000,
        compression=variables.choice("COMPRESSION", ("none", "gzip", "deflate")),
        ca_file=variables.file("CERTIFICATE"),
        certificate=certificate,
        key=key,
        insecure=urlsplit(url).scheme == "http",
    )


def _url(variables: _Variables, endpoint: str | None, protocol: str) -> str:
    """Return where one signal is sent, for HTTP with its path. `endpoint`: of the flag."""
    said_by = "--otlp" if endpoint else variables.named("ENDPOINT")
    url = endpoint or variables.read("ENDPOINT")
    if "://" not in url and protocol == "grpc":  # for gRPC it may be left out
        url = f"{'http' if variables.read('INSECURE').lower() == 'true' else 'https'}://{url}"
    parts = _parts(url, said_by)
    own = said_by not in ("--otlp", _PREFIX + "ENDPOINT")
    if not own and parts.path.rstrip("/").endswith(tuple(f"/v1/{each}" for each in _SIGNALS)):
        of_all = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/').rpartition('/v1/')[0]}"
        raise ConfigError(f"{said_by}: {url!r}: the path of a signal is added to it: give {of_all}")
    return url if own or protocol == "grpc" else f"{url.rstrip('/')}/v1/{variables.signal}"


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


def _certificate(variables: _Variables, protocol: str) -> tuple[str | None, str | None]:
    """Return the files of the client's certificate and key. For HTTP a file may have both; gRPC's library ends the
    process where one is missing."""
    certificate, key = variables.file("CLIENT_CERTIFICATE"), variables.file("CLIENT_KEY")
    if key and not certificate:
        raise ConfigError(f"{variables.named('CLIENT_KEY')}: {_PREFIX}CLIENT_CERTIFICATE is missing")
    if certificate and not key and protocol == "grpc":
        raise ConfigError(f"{variables.named('CLIENT_CERTIFICATE')}: for gRPC {_PREFIX}CLIENT_KEY is missing")
    return certificate, key


def _headers(variables: _Variables) -> dict[str, str]:
    """Return headers by names in lower case, which gRPC wants."""
    try:
        return {name.lower(): value for name, value in headers(variables.read("HEADERS")).items()}
    except ValueError as error:
        raise ConfigError(f"{variables.named('HEADERS')}: {error}") from error
