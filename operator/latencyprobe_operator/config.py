"""The operator's settings: environment variables, as the chart sets them."""

import os
import re
import socket
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Self

import msgspec

from latencyprobe.errors import LatencyProbeError
from latencyprobe.shared_store.settings import PREFIX, Settings


class Toleration(msgspec.Struct, frozen=True):
    """One of a pod's `tolerations`, by the names and with the defaults of the Kubernetes API."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class Namespaces(NamedTuple):
    """The operator's own and that of its agents: all that the clean-up needs, however wrong other settings are."""

    own: str
    agents: str

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """Read both. Raises LatencyProbeError naming the variable."""
        own = environment.get("LATENCYPROBE_NAMESPACE", "")
        if not own:
            raise LatencyProbeError("LATENCYPROBE_NAMESPACE is not set: give the operator's own namespace")
        return cls(own, environment.get("LATENCYPROBE_AGENT_NAMESPACE", f"{own}-agents"))


class Config(msgspec.Struct, frozen=True):
    """Where the operator is and what it serves. `listen_host`: empty for all addresses, of IPv4 and IPv6;
    `agent_tolerations`: of the agents' DaemonSet; `store_limit_bytes`: at which the store costs the pod its place, None
    where that is its volume's to say; `shared_store`: what judges objectives, if not the operator's own counts;
    `rule_labels`: of PrometheusRules, if it shall write any; `open_reports`: whether it writes Reports of
    openreports.io."""

    namespace: str
    agent_namespace: str
    agent_service_account: str
    tls_dir: Path
    pair_key_file: Path
    store: Path
    store_ephemeral: bool
    listen_host: str
    listen_port: int
    identity: str
    suspend: bool
    agent_tolerations: tuple[Toleration, ...]
    store_limit_bytes: int | None = None
    shared_store: Settings | None = None
    rule_labels: dict[str, str] | None = None
    open_reports: bool = False

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """Read `LATENCYPROBE_*`. Raises LatencyProbeError naming the variable."""
        listen = environment.get("LATENCYPROBE_LISTEN", ":8443")
        host, colon, port = listen.rpartition(":")
        if not colon or not port.isdecimal():
            raise LatencyProbeError(f"LATENCYPROBE_LISTEN: {listen} is not an address: write :8443")
        namespace, agent_namespace = Namespaces.from_environment(environment)
        return cls(
            namespace=namespace,
            agent_namespace=agent_namespace,
            agent_service_account=environment.get("LATENCYPROBE_AGENT_SERVICE_ACCOUNT", "latencyprobe-agent"),
            tls_dir=Path(environment.get("LATENCYPROBE_TLS_DIR", "/etc/latencyprobe/tls")),
            pair_key_file=Path(environment.get("LATENCYPROBE_PAIR_KEY_FILE", "/etc/latencyprobe/pair/key")),
            store=Path(environment.get("LATENCYPROBE_STORE", "/var/lib/latencyprobe/sli.db")),
            store_ephemeral=environment.get("LATENCYPROBE_STORE_EPHEMERAL", "false").lower() == "true",
            listen_host=host.strip("[]"),
            listen_port=int(port),
            suspend=environment.get("LATENCYPROBE_SUSPEND", "false").lower() == "true",
            agent_tolerations=_tolerations(environment.get("LATENCYPROBE_AGENT_TOLERATIONS", _ALL)),
            store_limit_bytes=_bytes("LATENCYPROBE_STORE_LIMIT", environment),
            shared_store=_shared_store(environment),
            open_reports=environment.get("LATENCYPROBE_OPEN_REPORTS", "false").lower() == "true",
            rule_labels=_rule_labels(environment.get("LATENCYPROBE_RULE_LABELS")),
            identity=f"{socket.gethostname()}_{uuid.uuid4()}",
        )


def _shared_store(environment: Mapping[str, str]) -> Settings | None:
    kind, url = environment.get("LATENCYPROBE_SLO_STORE", "sqlite"), environment.get(f"{PREFIX}URL", "")
    if kind not in ("sqlite", "prometheus"):
        raise LatencyProbeError(f"LATENCYPROBE_SLO_STORE: {kind!r}: write sqlite or prometheus")
    if kind == "sqlite":
        return None
    if not url:
        raise LatencyProbeError(f"{PREFIX}URL is not set: give the address of the Prometheus, http://HOST:9090")
    try:
        return Settings.of(url, environment)
    except LatencyProbeError as error:
        raise LatencyProbeError(f"{PREFIX}URL and its settings: {error}") from error


_UNITS = {"": 1.0, "m": 0.001}
_UNITS |= {unit: 1000.0**power for power, unit in enumerate("kMGTPE", 1)}
_UNITS |= {f"{unit}i": 1024.0**power for power, unit in enumerate("KMGTPE", 1)}


def _bytes(name: str, environment: Mapping[str, str]) -> int | None:
    """Read a quantity of Kubernetes, in bytes. Its client has a function for that, and takes 12 MB."""
    if name not in environment:
        return None
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([A-Za-z]*)", environment[name])
    if not found or found[2] not in _UNITS:
        raise LatencyProbeError(f"{name}: {environment[name]!r} is no size: write 2Gi")
    return int(float(found[1]) * _UNITS[found[2]])


_ALL = '[{"operator": "Exists"}]'  # as the chart's values have it


def _tolerations(text: str) -> tuple[Toleration, ...]:
    try:
        return msgspec.json.decode(text, type=tuple[Toleration, ...])
    except msgspec.DecodeError as error:
        what = "write the DaemonSet's tolerations, as a JSON list"
        raise LatencyProbeError(f"LATENCYPROBE_AGENT_TOLERATIONS: {error}: {what}") from error


def _rule_labels(text: str | None) -> dict[str, str] | None:
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=dict[str, str])
    except msgspec.DecodeError as error:
        what = "write labels as a JSON object, {} for none"
        raise LatencyProbeError(f"LATENCYPROBE_RULE_LABELS: {error}: {what}") from error
