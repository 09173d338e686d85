"""The agent's settings: frozen, read once from the environment, with the arithmetic behind every default.

The chart sets the LATENCYPROBE_* names; flags of `run` replace single fields:

LATENCYPROBE_NODE         node name (downward API spec.nodeName); standalone: the host's name
LATENCYPROBE_DIRECTORY    https URL of the operator's directory; needed by `agent`
LATENCYPROBE_TOKEN_FILE   projected service account token, audience `latencyprobe-directory`
LATENCYPROBE_CA_FILE      CA that signed the directory's certificate
LATENCYPROBE_CGROUP_ROOT  the host's cgroup mount (in the pod /host/cgroup, read-only)
LATENCYPROBE_STATE_DIR    the last plan and counts that wait for the directory are kept here (emptyDir)
LATENCYPROBE_BPF_DIR      folder of exchange.bpf.o; without it those of the checkout, then those in the wheel
LATENCYPROBE_HEALTH_PORT  GET /healthz: the loop turns; /readyz: it measures. 0 switches it off
LATENCYPROBE_RECORDS_PER_SECOND, LATENCYPROBE_SPANS_PER_SECOND, LATENCYPROBE_SERIES, LATENCYPROBE_NODE_SERIES,
LATENCYPROBE_RING_BYTES, LATENCYPROBE_OUTBOX_BYTES  bounds and sizes; see the fields below
POD_NAME, POD_NAMESPACE   names of the agent in its own metrics (downward API)
POD_UID                   its pod, to find its cgroups for the canary (loop/canary.py); without it there is none
OTEL_METRIC_EXPORT_INTERVAL  ms between exports of metrics; OTEL_EXPORTER_OTLP_* are read by telemetry/endpoints.py

Probes of the chart: httpGet /healthz (liveness, failureThreshold 3, period 10 s) and /readyz (readiness), port 8081.
"""

import os
import socket
import uuid
from collections.abc import Mapping
from pathlib import Path

import msgspec

from latencyprobe.errors import LatencyProbeError
from latencyprobe.wire import STATUS_S

_PACKAGED_BPF = Path(__file__).parent / "bpf"  # setup.py puts them there
_RECORD_BYTES = 200  # of the ring, about: 232, with its header, would double the ring of 5,000 records a second
BURST_S = 2  # worth of records that may come at once (bpf/events.h, LP_BURST_WINDOWS)
_LEAST_RING_BYTES, _MOST_RING_BYTES = 2 << 20, 8 << 20
_CHECKOUT_BPF = Path(__file__).parents[2] / "build" / "bpf"


class ConfigError(LatencyProbeError):
    """A variable has a value that cannot be used; the message names both."""


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Every setting of the agent."""

    node: str = ""
    instance: str = ""  # random, one per start
    directory: str = ""
    token_file: Path = Path("/var/run/secrets/latencyprobe/token")
    ca_file: Path = Path("/etc/latencyprobe/ca.crt")
    cgroup_root: Path | None = None
    state_dir: Path = Path("/var/lib/latencyprobe")
    bpf_dir: Path = _PACKAGED_BPF
    health_port: int = 8081
    pod: str = ""
    pod_namespace: str = ""
    pod_uid: str = ""

    # 0: about twice what may come at once before records are sampled, two seconds' worth of their limit (bpf/events.h,
    # LP_BURST_WINDOWS), in records of 224 + 8 bytes: 4 MiB for 5,000/s, 2 to 8 MiB. Then an agent that is kept from its
    # processor loses none of a burst. Every MiB is one of resident memory.
    ring_bytes: int = 0
    # Records of this node over all targets that are neither slow nor failed, 0: no limit. Above it they are sampled
    # (docs/design/measurement.md, "Record sampling"). One takes about 1 us to read and measure: 0.5 % of a core.
    records_per_second: int = 5_000
    # How long records may wait in the ring; the kernel wakes the reader earlier when a quarter is full. 2 to 4 ms of a
    # turn are the same for one record as for thousands.
    drain_interval_s: float = 0.5
    # About 8,000 spans of 1 kB: 80 s of collector outage at the default 100 spans/s.
    outbox_bytes: int = 8 << 20
    spans_per_second: int = 2000  # cap per node over all targets (docs/design/measurement.md, "Sampling decision")
    series: int = 200  # per target set and metric; the rest is folded into `other`
    # Of all of them, shared out among namespaces, and as many of `other`. One has 4 kB, one of evidence 8, and some 250
    # bytes of an export: 35 MB and 2 MiB.
    node_series: int = 8192
    metric_interval_s: float = 15.0

    # Identities come in milliseconds; after 4 s a span goes out without (docs/design/telemetry.md, "Waiting spans").
    identity_wait_s: float = 4.0
    # The other half of a pair on this node ends within one drain of this one, so the next turn has both.
    join_wait_s: float = 0.45
    # From a slow exchange to its server half from another node: both ways through the directory, and the turns at both
    # ends, take about 1 s, 2 at most, and the idle timeout may be noticed there 1 s (a tick) later than here.
    remote_join_wait_s: float = 4.0
    remote_join_keep_s: float = 2.5
    tick_s: float = 1.0  # flush, counts, cgroups, plan
    upload_interval_s: float = 5.0  # SLI counts to the directory or store
    status_interval_s: float = STATUS_S
    survey_interval_s: float = 30.0  # full walk of the cgroup tree
    retry_load_s: float = 60.0

    @property
    def ring_size(self) -> int:
        """Bytes of the ring of exchanges, a power of two."""
        burst = self.records_per_second * BURST_S or _MOST_RING_BYTES
        by_limit = 1 << (min(max(2 * burst * _RECORD_BYTES, _LEAST_RING_BYTES), _MOST_RING_BYTES) - 1).bit_length()
        return self.ring_bytes or by_limit

    @property
    def bpf_object(self) -> Path:
        """The compiled programs."""
        return self.bpf_dir / "exchange.bpf.o"


def from_environment(environ: Mapping[str, str] = os.environ) -> Config:
    """Read the variables above. Raises ConfigError naming the variable."""
    paths = {
        field: Path(environ[name])
        for field, name in (
            ("token_file", "LATENCYPROBE_TOKEN_FILE"),
            ("ca_file", "LATENCYPROBE_CA_FILE"),
            ("cgroup_root", "LATENCYPROBE_CGROUP_ROOT"),
            ("state_dir", "LATENCYPROBE_STATE_DIR"),
            ("bpf_dir", "LATENCYPROBE_BPF_DIR"),
        )
        if environ.get(name)
    }
    paths.setdefault("bpf_dir", _CHECKOUT_BPF if _CHECKOUT_BPF.is_dir() else _PACKAGED_BPF)
    numbers = {
        field: _number(environ, name, lowest, highest)
        for field, name, lowest, highest in (
            ("health_port", "LATENCYPROBE_HEALTH_PORT", 0, 65535),
            ("records_per_second", "LATENCYPROBE_RECORDS_PER_SECOND", 0, 10_000_000),
            ("ring_bytes", "LATENCYPROBE_RING_BYTES", 4096, 1 << 30),
            ("outbox_bytes", "LATENCYPROBE_OUTBOX_BYTES", 1 << 16, 1 << 30),
            ("spans_per_second", "LATENCYPROBE_SPANS_PER_SECOND", 0, 1_000_000),
            ("series", "LATENCYPROBE_SERIES", 1, 100_000),
            ("node_series", "LATENCYPROBE_NODE_SERIES", 1, 1_000_000),
        )
        if environ.get(name)
    }
    ring_bytes = numbers.get("ring_bytes", 4096)
    if ring_bytes & (ring_bytes - 1):
        raise ConfigError(f"LATENCYPROBE_RING_BYTES: {ring_bytes} is no power of two: use 8388608, for example")
    interval_ms = _number(environ, "OTEL_METRIC_EXPORT_INTERVAL", 100, 3_600_000, 15_000)
    directory = environ.get("LATENCYPROBE_DIRECTORY", "")
    if directory and not directory.startswith("https://"):
        raise ConfigError(f"LATENCYPROBE_DIRECTORY: {directory!r} is no https URL")
    return msgspec.structs.replace(
        Config(
            node=environ.get("LATENCYPROBE_NODE") or socket.gethostname(),
            instance=str(uuid.uuid4()),
            directory=directory,
            pod=environ.get("POD_NAME", ""),
            pod_namespace=environ.get("POD_NAMESPACE", ""),
            pod_uid=environ.get("POD_UID", ""),
            metric_interval_s=interval_ms / 1000,
        ),
        **paths,
        **numbers,
    )


def _number(environ: Mapping[str, str], name: str, lowest: int, highest: int, default: int = 0) -> int:
    text = environ.get(name) or str(default)
    if not text.isdecimal() or not lowest <= int(text) <= highest:
        raise ConfigError(f"{name}: {text!r} is no whole number from {lowest} to {highest}")
    return int(text)
