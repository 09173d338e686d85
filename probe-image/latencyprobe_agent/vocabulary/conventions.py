"""Every name that leaves the agent over OTLP: metrics, attributes and their values.

The only module that spells them; `spans.py` and `metrics.py` build from it. OpenTelemetry's own names are used where
they exist (semantic conventions 1.44); `rpc.*` and `http.*` never, because no protocol is parsed.
"""

from typing import Literal, NamedTuple

SCOPE = "latencyprobe"

# Resource
SERVICE_NAME = "service.name"
SERVICE_NAMESPACE = "service.namespace"
SERVICE_INSTANCE_ID = "service.instance.id"
SERVICE_VERSION = "service.version"
HOST_NAME = "host.name"
PROCESS_PID = "process.pid"
CONTAINER_ID = "container.id"
K8S_CONTAINER_NAME = "k8s.container.name"
K8S_NAMESPACE_NAME = "k8s.namespace.name"
K8S_NODE_NAME = "k8s.node.name"
K8S_POD_NAME = "k8s.pod.name"
K8S_POD_UID = "k8s.pod.uid"
SDK_NAME = "telemetry.sdk.name"
SDK_LANGUAGE = "telemetry.sdk.language"
SDK_VERSION = "telemetry.sdk.version"

# Spans
NETWORK_TRANSPORT = "network.transport"
NETWORK_TYPE = "network.type"
NETWORK_PEER_ADDRESS = "network.peer.address"
NETWORK_PEER_PORT = "network.peer.port"
SERVER_ADDRESS = "server.address"
SERVER_PORT = "server.port"
CLIENT_ADDRESS = "client.address"
CLIENT_PORT = "client.port"
SERVICE_PEER_NAME = "service.peer.name"
CPU_MODE = "cpu.mode"
SERVICE_PEER_NAMESPACE = "service.peer.namespace"
PEER_SERVICE = "peer.service"  # deprecated, kept because Tempo's service graph still reads it (grafana/tempo#7631)
ERROR_TYPE = "error.type"

PROBE = "latencyprobe.probe"
TARGET = "latencyprobe.target"
ROLE = "latencyprobe.role"
CLASS = "latencyprobe.class"
OBJECTIVE = "latencyprobe.objective"
PERSPECTIVE = "latencyprobe.perspective"
OUTCOME = "latencyprobe.outcome"
REASON = "latencyprobe.reason"
SIGNAL = "latencyprobe.signal"  # of kernel records: exchanges, retransmits, ...
OTLP_SIGNAL = "latencyprobe.otlp.signal"  # traces or metrics
PART = "latencyprobe.part"
STAGE = "latencyprobe.stage"
PAIR_KEY = "latencyprobe.pair.key"
REQUEST_SIZE = "latencyprobe.request.size"
RESPONSE_SIZE = "latencyprobe.response.size"
DOMINANT_STAGE = "latencyprobe.dominant_stage"
RTT = "latencyprobe.tcp.rtt"
RTT_MIN = "latencyprobe.tcp.rtt_min"
RETRANSMITS = "latencyprobe.tcp.retransmits"
SAMPLED_REASON = "latencyprobe.sampled.reason"
SAMPLED_RATIO = "latencyprobe.sampled.ratio"
NETWORK_EXCESS = "latencyprobe.network_excess"
JOINED = "latencyprobe.joined"
FLAGS = "latencyprobe.flags"
PEER_UNRESOLVED = "latencyprobe.peer.unresolved"
ROOT_REASON = "latencyprobe.root.reason"
DIRECTION = "latencyprobe.direction"
TCP_STATE = "latencyprobe.tcp.state"
RETRANSMIT_SEGMENTS = "latencyprobe.retransmit.segments"
RETRANSMIT_SIZE = "latencyprobe.retransmit.size"
RETRANSMIT_NTH = "latencyprobe.retransmit.nth"
METHOD = "latencyprobe.method"
HANDSHAKE_RTT = "latencyprobe.handshake.rtt"
HANDSHAKE_RTT_MIN = "latencyprobe.handshake.rtt_min"
HANDSHAKE_RTT_MAX = "latencyprobe.handshake.rtt_max"
HANDSHAKE_CONNECT = "latencyprobe.handshake.connect"
HANDSHAKE_SYNS = "latencyprobe.handshake.syns"
HANDSHAKE_SYNACK_RETRANSMITS = "latencyprobe.handshake.synack_retransmits"
TCPRT_RECEIVE = "latencyprobe.tcprt.receive"
TCPRT_SERVER = "latencyprobe.tcprt.server"
TCPRT_TOTAL = "latencyprobe.tcprt.total"
TCPRT_REORDER = "latencyprobe.tcprt.reorder"
TCPRT_RECORD = "latencyprobe.tcprt.record"
WAIT = "latencyprobe.wait"  # of an event: time since the bytes had last been sent

OTHER = "other"  # the series that takes what is above the cap
LOCAL = "local"  # both halves were seen by this agent
REMOTE = "remote"  # the server half was asked of another node's agent
UNRESOLVED = "unresolved"  # peer service of an address nobody could name

# `error.type` by the name of the kernel's outcome; `_OTHER` is OpenTelemetry's own fallback value.
ERROR_TYPES = {
    "RESET": "ECONNRESET",
    "TIMED_OUT": "ETIMEDOUT",
    "UNREACHABLE": "EHOSTUNREACH",
    "ABORTED": "aborted",
    "OTHER": "_OTHER",
}


def stage_attribute(stage: str) -> str:
    """Return the span attribute (and the span event at the stage's start) of one stage."""
    return f"latencyprobe.stage.{stage}"


class Metric(NamedTuple):
    """One instrument. `unit` in UCUM; counters are monotonic and cumulative."""

    name: str
    unit: str
    kind: Literal["histogram", "counter", "gauge"]
    description: str


SERVER_DURATION = Metric(
    "latencyprobe.server.duration", "s", "histogram", "First request byte readable to last response byte handed over."
)
CLIENT_DURATION = Metric(
    "latencyprobe.client.duration", "s", "histogram", "First send call of the request to last read of the response."
)
PEER_DURATION = Metric(
    "latencyprobe.peer.duration", "s", "histogram", "Duration by the service at the other end, from records."
)
STAGE_DURATION = Metric("latencyprobe.stage.duration", "s", "histogram", "Duration of each stage, from records.")
NETWORK_DURATION = Metric(
    "latencyprobe.network.duration", "s", "histogram", "Network share of joined pairs: both ways, without the hosts."
)
TCP_RTT = Metric("latencyprobe.tcp.rtt", "s", "histogram", "Smoothed round trip time at the end of each exchange.")
TCP_RETRANSMITS = Metric("latencyprobe.tcp.retransmits", "{segment}", "counter", "Segments sent again, by reason.")
TCP_RETRANSMITS_FAILED = Metric(
    "latencyprobe.tcp.retransmits.failed", "{attempt}", "counter", "Attempts to send again that failed, by error."
)
TCP_RETRANSMITS_SPURIOUS = Metric(
    "latencyprobe.tcp.retransmits.spurious", "{segment}", "counter", "Segments sent again in vain, by how it was found."
)
TCP_SENT_SEGMENTS = Metric(
    "latencyprobe.tcp.sent.segments", "{segment}", "counter", "Segments with data that were sent, retransmits included."
)
TCP_SENT_SIZE = Metric("latencyprobe.tcp.sent.size", "By", "counter", "Bytes that were sent, retransmits included.")
TCP_RETRANSMITTED_SIZE = Metric("latencyprobe.tcp.retransmitted.size", "By", "counter", "Bytes that were sent again.")
TCPRT_DURATION = Metric(
    "latencyprobe.tcprt.duration", "s", "histogram", "Tasks of TCP-RT: first byte of the request to the last ACK."
)
TCPRT_SERVER_DURATION = Metric(
    "latencyprobe.tcprt.server", "s", "histogram", "Tasks of TCP-RT: last byte of the request to first of the response."
)
TCPRT_RECEIVE_DURATION = Metric(
    "latencyprobe.tcprt.receive", "s", "histogram", "Tasks of TCP-RT: first to last byte of what came in."
)
TCPRT_TASKS = Metric("latencyprobe.tcprt.tasks", "{task}", "counter", "Tasks of TCP-RT by how they ended.")
EXCHANGES = Metric("latencyprobe.exchanges", "{exchange}", "counter", "Ended exchanges by class of their connection.")
FAILURES = Metric("latencyprobe.exchange.failures", "{exchange}", "counter", "Exchanges that failed, by error.")
EXCLUDED = Metric(
    "latencyprobe.exchange.excluded", "{exchange}", "counter", "Exchanges that are no SLI event, by reason."
)
PAIRS = Metric(
    "latencyprobe.pairs", "{pair}", "counter", "Client and server halves joined, on this node or by the remote join."
)
SLO_EVENTS = Metric(
    "latencyprobe.slo.events",
    "{event}",
    "counter",
    "SLI events, good and bad; from 0 again when the objective's definition changes.",
)
HANDSHAKE_DURATION = Metric(
    "latencyprobe.tcp.handshake.duration",
    "s",
    "histogram",
    "RTT of the handshake: a client's SYN to its SYN-ACK, a server's SYN-ACK to the ACK.",
)
CONNECT_DURATION = Metric(
    "latencyprobe.tcp.connect.duration",
    "s",
    "histogram",
    "What a client waited for a connection that opened, lost SYNs included.",
)
FAILED_CONNECTIONS = Metric(
    "latencyprobe.tcp.failed_connections", "{connection}", "counter", "Connections that did not open, by reason."
)
HANDSHAKE_AMBIGUOUS = Metric(
    "latencyprobe.tcp.handshake.ambiguous",
    "{connection}",
    "counter",
    "Handshakes whose RTT is not known: which of several packets was answered cannot be told.",
)

RECORDS_READ = Metric("latencyprobe.agent.records.read", "{record}", "counter", "Records read from the kernel.")
RECORDS_LOST = Metric(
    "latencyprobe.agent.records.lost", "{record}", "counter", "What the kernel could not deliver, by reason."
)
RECORDS_EXCLUDED = Metric(
    "latencyprobe.agent.records.excluded", "{record}", "counter", "What the kernel was not to deliver, by reason."
)
PEERS_UNRESOLVED = Metric(
    "latencyprobe.agent.peers.unresolved", "{peer}", "counter", "Spans sent before their peer was known."
)
AGENT_FAILURES = Metric(
    "latencyprobe.agent.failures",
    "{failure}",
    "counter",
    "Turns that a part of the agent raised at and was left out of; the others went on.",
)
REMOTE_JOINS = Metric(
    "latencyprobe.agent.remote_joins",
    "{half}",
    "counter",
    "Halves asked of other nodes, or by them, by what became of them.",
)
EVIDENCE = Metric(
    "latencyprobe.agent.evidence", "{record}", "counter", "Records of evidence, by signal and by what became of them."
)
SPANS = Metric("latencyprobe.agent.spans", "{span}", "counter", "Spans selected, by what became of them.")
EXPORT_ERRORS = Metric("latencyprobe.agent.export.errors", "{request}", "counter", "Failed export attempts.")
SERIES_OVERFLOW = Metric(
    "latencyprobe.agent.series.overflow", "{series}", "counter", "Series folded into `other` by the cap, each once."
)
PLAN_AGE = Metric("latencyprobe.agent.plan.age", "s", "gauge", "Time since the directory last confirmed the plan.")
DRAIN_LAG = Metric(
    "latencyprobe.agent.drain.lag", "s", "gauge", "Longest time between two reads of the ring since the last export."
)
OUTBOX_SIZE = Metric("latencyprobe.agent.outbox.size", "By", "gauge", "Telemetry waiting for the collector.")
CPU_TIME = Metric("process.cpu.time", "s", "counter", "CPU time of the agent.")
MEMORY = Metric("process.memory.usage", "By", "gauge", "Resident memory of the agent.")

METRICS = tuple(value for value in dict(globals()).values() if isinstance(value, Metric))
