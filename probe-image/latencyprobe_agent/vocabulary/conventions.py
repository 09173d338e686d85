"""Every name that leaves the agent over OTLP, with what it means: attributes, span events and metrics.

The only module that spells them, but for those of the metrics of objectives (`latencyprobe.slo_events`);
docs/telemetry.md is made from it (`make gen`). OpenTelemetry's own names are used where they exist (semantic
conventions 1.44); `rpc.*` and `http.*` never, because no protocol is parsed.
"""

from functools import cache
from typing import Literal, NamedTuple, Self

from latencyprobe import slo_events
from latencyprobe_agent.vocabulary.values import ERRORS

SCOPE = "latencyprobe"

AttributeValue = str | int | float | bool


class Attribute(str):
    """The name of an attribute. What it means on a resource, a span, a span event, a link and a metric point; empty
    where it does not stand. Raises TypeError for one that means nothing anywhere."""

    resource: str
    span: str
    event: str
    link: str
    point: str

    def __new__(
        cls, name: str, *, resource: str = "", span: str = "", event: str = "", link: str = "", point: str = ""
    ) -> Self:
        """Return the name with its meanings."""
        if not (resource or span or event or link or point):
            raise TypeError(f"{name}: say what it means on a resource, span, event, link or point")
        attribute = str.__new__(cls, name)
        attribute.resource, attribute.span, attribute.event, attribute.point = resource, span, event, point
        attribute.link = link
        return attribute


class Event(str):
    """The name of a span event, with what it says."""

    meaning: str

    def __new__(cls, name: str, meaning: str) -> Self:
        """Return the name with its meaning."""
        event = str.__new__(cls, name)
        event.meaning = meaning
        return event


# -- Attributes that OpenTelemetry names

SERVICE_NAME = Attribute(
    "service.name", resource="the pod's own word, else its workload's name; standalone the process's name"
)
SERVICE_NAMESPACE = Attribute("service.namespace", resource="the pod's own word, else its namespace")
SERVICE_INSTANCE_ID = Attribute(
    "service.instance.id",
    resource="the pod's own word, else namespace, pod and container; standalone host and process; the node, of who is "
    "unknown and of `other`",
)
HOST_NAME = Attribute("host.name", resource="standalone: this host")
PROCESS_PID = Attribute("process.pid", resource="standalone: the process")
CONTAINER_ID = Attribute("container.id", resource="of the runtime")
K8S_CONTAINER_NAME = Attribute("k8s.container.name", resource="name of the container")
K8S_NAMESPACE_NAME = Attribute("k8s.namespace.name", resource="namespace of the pod")
K8S_NODE_NAME = Attribute("k8s.node.name", resource="its node")
K8S_POD_NAME = Attribute("k8s.pod.name", resource="name of the pod; its uid, address and owners stand beside it")
SDK_NAME = Attribute("telemetry.sdk.name", resource="always `latencyprobe`: who made the telemetry")
SDK_LANGUAGE = Attribute("telemetry.sdk.language", resource="always `python`")
SDK_VERSION = Attribute("telemetry.sdk.version", resource="the agent's version")

NETWORK_TRANSPORT = Attribute("network.transport", span="always `tcp`")
NETWORK_PROTOCOL_NAME = Attribute("network.protocol.name", span="`http` of a stream; of turns nothing is known")
NETWORK_PROTOCOL_VERSION = Attribute("network.protocol.version", span="`2` of a stream")
NETWORK_TYPE = Attribute("network.type", span="`ipv4` or `ipv6`")
NETWORK_PEER_ADDRESS = Attribute(
    "network.peer.address",
    span="the socket's peer; for a caller it may be a Service address",
    event="whom the server called",
)
NETWORK_PEER_PORT = Attribute("network.peer.port", span="its port", event="the port that it called")
SERVER_ADDRESS = Attribute("server.address", span="who answers: Service or address")
SERVER_PORT = Attribute("server.port", span="its port")
CLIENT_ADDRESS = Attribute("client.address", span="who asks (SERVER span)")
CLIENT_PORT = Attribute("client.port", span="its port")
SERVICE_PEER_NAME = Attribute(
    "service.peer.name",
    span="service at the other end",
    point="service at the other end; `other` beyond the cap on series",
)
SERVICE_PEER_NAMESPACE = Attribute("service.peer.namespace", span="its namespace")
# deprecated, kept because Tempo's service graph still reads it (grafana/tempo#7631)
PEER_SERVICE = Attribute("peer.service", span="the same name, for Tempo's service graph")
ERROR_TYPE = Attribute(
    "error.type",
    span="only on failure: " + ", ".join(f"`{error.type}`" for error in ERRORS.values()),
    event="as on spans, of a call",
    point="as on spans; of failed exports: the status or the exception",
)
CPU_MODE = Attribute("cpu.mode", point="`user` or `system`")

# -- Attributes of our own

PROBE = Attribute(slo_events.PROBE, span="name of the LatencyProbe", point="name of the LatencyProbe")
PROBE_NAMESPACE = Attribute(slo_events.PROBE_NAMESPACE, point="its namespace")
TARGET = Attribute(slo_events.TARGET, span="name of its target", point="name of its target")
CLASS = Attribute(
    "latencyprobe.class",
    span="how the connection takes turns: below",
    point="how the connection takes turns: below",
)
PAIR_KEY = Attribute(
    "latencyprobe.pair.key",
    span="the hash both hosts compute for this exchange; never a raw sequence number",
    event="the same of a call",
)
STREAM_ID = Attribute("latencyprobe.http2.stream.id", span="number of the stream on its connection")
FIRST_ANSWER = Attribute(
    "latencyprobe.http2.first_answer", span="of a streaming call: from its first byte to the answer's first, seconds"
)
REQUEST_SIZE = Attribute("latencyprobe.request.size", span="bytes; of a stream those of its frames")
RESPONSE_SIZE = Attribute("latencyprobe.response.size", span="bytes; of a stream those of its frames")
DOMINANT_STAGE = Attribute("latencyprobe.dominant_stage", span="the stage with the largest share")
RTT = Attribute("latencyprobe.tcp.rtt", span="the kernel's smoothed round trip time, seconds")
RTT_MIN = Attribute("latencyprobe.tcp.rtt_min", span="its minimum, seconds")
RETRANSMITS = Attribute("latencyprobe.tcp.retransmits", span="segments that this end sent again during the exchange")
UNSENT_REASON = Attribute(
    "latencyprobe.tcp.unsent.reason",
    span="why bytes of this RPC waited in the kernel of the end that had written them: below",
)
UNSENT_HOLDER = Attribute("latencyprobe.tcp.unsent.holder", span="the end whose kernel held them: `client` or `server`")
UNSENT_SIZE = Attribute("latencyprobe.tcp.unsent.size", span="the most bytes that one of its send calls left unsent")
UNSENT_HELD = Attribute(
    "latencyprobe.tcp.unsent.held", span="from the return of its last send call until the last byte left, seconds"
)
UNSENT_BOUND = Attribute(
    "latencyprobe.tcp.unsent.bound", span="what that time is: `exact`, or a bound: `at_most`, `at_least`"
)
SAMPLED_REASON = Attribute(
    "latencyprobe.sampled.reason",
    span="`slow`, `error`, `ratio`, `other_half`: the other half is slow or failed, `call`: such a one waited for it",
)
SAMPLED_RATIO = Attribute("latencyprobe.sampled.ratio", span="inclusion probability, to scale counts")
NETWORK_EXCESS = Attribute(
    "latencyprobe.network_excess",
    span="network share beyond the round trip, seconds; may be negative by the sample's error",
)
JOINED = Attribute(
    "latencyprobe.joined",
    span="`local`: both halves were seen on this node; `remote`: the server half was asked of its node",
    point="as on spans",
)
FLAGS = Attribute("latencyprobe.flags", span="how it was cut, and what makes a stamp approximate: below")
PEER_UNRESOLVED = Attribute("latencyprobe.peer.unresolved", span="true when the peer's identity was not known in time")
ROOT_REASON = Attribute("latencyprobe.root.reason", span="why a SERVER span has no parent")

ROLE = Attribute(slo_events.ROLE, point="`client` or `server`")
STAGE = Attribute("latencyprobe.stage", point="the stage")
OBJECTIVE = Attribute(slo_events.OBJECTIVE, point="name of the objective")
DEFINITION = Attribute(slo_events.DEFINITION, point="digest of what makes its counts comparable: another after an edit")
PERSPECTIVE = Attribute(slo_events.PERSPECTIVE, point="`client` or `server`")
OUTCOME = Attribute(
    slo_events.OUTCOME,
    event="how the connection opened, or why it did not",
    point="`good` or `bad`; how a connection opened; of spans and records of evidence: what became of them",
)
REASON = Attribute(
    slo_events.REASON,
    event="why it was sent again, or waited: `interruptible`, `disk`, `stopped`; for a CPU: `preempted`, `run_queue` "
    "after a wake-up, `throttled` by its quota",
    point="why something was excluded, lost, unresolved, sent again, kept from being sent, or waited: as on events",
)
SIGNAL = Attribute("latencyprobe.signal", point="the kind of record")
OTLP_SIGNAL = Attribute("latencyprobe.otlp.signal", point="`traces` or `metrics`")
PART = Attribute("latencyprobe.part", point="the part of the agent")
BOUND = Attribute("latencyprobe.bound", point="what a time is: `exact`, or a bound: `at_most`, `at_least`")
DIRECTION = Attribute("latencyprobe.direction", point="`request` if this end is the client, else `response`")

# -- Attributes of evidence

WAIT = Attribute(
    "latencyprobe.wait",
    event="seconds. Of a retransmit: since the bytes had last been sent, at most so much did it cost; of a wait: its "
    "duration inside `process`",
)
RETRANSMIT_SEGMENTS = Attribute("latencyprobe.retransmit.segments", event="segments of one retransmit")
RETRANSMIT_SIZE = Attribute("latencyprobe.retransmit.size", event="its bytes")
RETRANSMIT_NTH = Attribute("latencyprobe.retransmit.nth", event="how often these bytes had been sent again by then")
TCP_STATE = Attribute("latencyprobe.tcp.state", event="state of the connection")
METHOD = Attribute(
    "latencyprobe.method",
    event="how a handshake was measured",
    point="how a handshake was measured: `kernel`, or `tc` at a network interface",
)
HANDSHAKE_RTT = Attribute("latencyprobe.handshake.rtt", event="round trip time of the handshake, seconds")
HANDSHAKE_RTT_MIN = Attribute(
    "latencyprobe.handshake.rtt_min", event="its least, where it is not known which packet was answered"
)
HANDSHAKE_RTT_MAX = Attribute("latencyprobe.handshake.rtt_max", event="its most")
HANDSHAKE_CONNECT = Attribute(
    "latencyprobe.handshake.connect", event="what the client waited for the connection, seconds"
)
HANDSHAKE_SYNS = Attribute("latencyprobe.handshake.syns", event="SYNs sent, or seen")
HANDSHAKE_SYNACK_RETRANSMITS = Attribute(
    "latencyprobe.handshake.synack_retransmits", event="SYN-ACKs that the server sent again"
)
TCPRT_RECEIVE = Attribute(
    "latencyprobe.tcprt.receive",
    span="with `evidence.tcprt`: first to last byte of what came in, seconds",
    event="first to last byte of what came in, seconds",
)
TCPRT_SERVER = Attribute(
    "latencyprobe.tcprt.server",
    span="with `evidence.tcprt`: last byte of the request to first of the response, seconds",
    event="last byte of the request to first of the response, seconds",
)
TCPRT_TOTAL = Attribute(
    "latencyprobe.tcprt.total",
    span="with `evidence.tcprt`: until the last ACK (server) or the last byte (client), seconds",
    event="until the last ACK (server) or the last byte (client), seconds",
)
TCPRT_REORDER = Attribute(
    "latencyprobe.tcprt.reorder",
    span="with `evidence.tcprt`: data of the message came out of order",
    event="data of the message came out of order",
)
TCPRT_RECORD = Attribute(
    "latencyprobe.tcprt.record",
    event="how the task ended: `R`, `P` done, `N` in the request, `W` before the last ACK",
    point="how a task of TCP-RT ended: `R`, `P` done, `N` in the request, `W` before the last ACK",
)

WAIT_CALL = Attribute(
    "latencyprobe.syscall",
    event="system call in which a thread waited; `page_fault`: for a page, in none",
    point="system call in which a thread waited; `page_fault`: for a page, in none",
)
WAIT_CONFIDENCE = Attribute(
    "latencyprobe.confidence",
    event="`thread`: the waiting thread served this request; `process`: another one of a process that had no other one",
    point="whom a wait may explain: `thread`, `process`: as on events; `ambiguous`: one of several requests; `nobody`",
)
WAIT_THREAD = Attribute("thread.name", event="name of the thread that waited")
WAIT_THREAD_ID = Attribute("thread.id", event="its id, on the host")
WAIT_READY = Attribute("latencyprobe.wait.ready", event="of a wait: time in which the thread could have run, seconds")
WAIT_STACK = Attribute(
    "latencyprobe.stack.kernel",
    event="kernel functions in which it waited, outermost first, by `;`; begins with `…` where there may be more",
)
WAIT_USER_STACK = Attribute(
    "latencyprobe.stack.user",
    event="with `stacks: User`: functions of the program in which it waited, in the same form",
)
WAIT_USER_STACK_COMPLETE = Attribute(
    "latencyprobe.stack.user.complete",
    event="it leads to the function with which the thread began; else callers are missing, or wrong where code has no "
    "frame pointers",
)
WAIT_WAKER = Attribute(
    "latencyprobe.wait.waker",
    event="who ended a wait in a call: a `thread` of the process, of another `process` of its container, of the "
    "`kernel`, or `outside` of it; an `interrupt`: a timer, a device, the network",
)
WAIT_WAKER_NAME = Attribute("latencyprobe.wait.waker.name", event="name of that thread; not of one outside")
WAIT_WAKER_ID = Attribute("latencyprobe.wait.waker.id", event="its id, on the host")
WAIT_WAKER_STACK = Attribute(
    "latencyprobe.stack.waker", event="with `stacks: User`: functions in which a `thread` or `process` woke it"
)
WAIT_WAKER_STACK_COMPLETE = Attribute("latencyprobe.stack.waker.complete", event="the same of that stack")
PROCESS_ON_CPU = Attribute(
    "latencyprobe.process.on_cpu", span="with `evidence.syscalls` or `offcpu`: of `process`, on a CPU, seconds"
)
PROCESS_READY = Attribute("latencyprobe.process.ready", span="of `process`, able to run, seconds")
PROCESS_THROTTLED = Attribute(
    "latencyprobe.process.throttled", span="of that, at most: the CPU quota was used up, seconds"
)
PROCESS_BLOCKED = Attribute(
    "latencyprobe.process.blocked", span="of `process`, blocked in system calls or page faults, seconds"
)
PROCESS_CALLS = Attribute("latencyprobe.process.calls", span="of that, by call: seconds, and in how many waits")
SPLIT = Attribute(
    "latencyprobe.split",
    point="how much is known of a slow request: `split`, where its time went; `ambiguous`: its thread served others "
    "too; `handed_over`: another thread answered; `unseen`: the kernel hid when it ran",
)

# -- Attributes of what held up a container

RESOURCE = Attribute("latencyprobe.resource", point="what a container waited for: `cpu`, `memory` or `io`")
STALLED = Attribute("latencyprobe.stalled", point="`some`: at least one task waited; `full`: all that could run")
LEVEL = Attribute(
    "latencyprobe.level",
    point="whose quota: `container`, or `above`: its pod's (standalone of all cgroups above), told with each container",
)

# -- Attributes of calls

CALLS = Attribute("latencyprobe.calls", span="RPCs of its own that it waited for within `process` (SERVER span)")
CALLS_WAIT = Attribute("latencyprobe.calls.wait", span="the time that these cover together, seconds")
CALL_DURATION = Attribute("latencyprobe.call.duration", event="how long the call took, seconds")
LINK = Attribute(
    "latencyprobe.link",
    link="`call`: to the CLIENT span of an RPC that this one waited for; `caller`: from there to the SERVER span",
)

OTHER = "other"  # the series that takes what is above the cap
TO_CALL = "call"  # a link from a server's span to a client's that it waited for
TO_CALLER = "caller"  # and back
LOCAL = "local"  # both halves were seen by this agent
REMOTE = "remote"  # the server half was asked of another node's agent
UNRESOLVED = "unresolved"  # peer service of an address nobody could name

# -- Span events, beside those at the start of each stage

RETRANSMIT_EVENT = Event("retransmit", "one record of `evidence.retransmits`: segments that were sent again at once")
HANDSHAKE_EVENT = Event("handshake", "how the connection opened, on its first exchange")
TCPRT_EVENT = Event("tcprt", "one record of `evidence.tcprt`")
CALL_EVENT = Event("call", "an RPC that the server waited for while it processed this one, at its start")
WAIT_EVENT = Event("wait", "one long wait of `evidence.syscalls` or `evidence.offcpu` inside `process`, at its end")


@cache
def stage_attribute(stage: str) -> Attribute:
    """Return the span attribute (and the span event at the stage's start) of one stage."""
    return Attribute(f"latencyprobe.stage.{stage}", span="duration of the stage, seconds")


class Metric(NamedTuple):
    """One instrument. `unit` in UCUM; counters are monotonic and cumulative."""

    name: str
    unit: str
    kind: Literal["histogram", "counter", "gauge"]
    description: str


SERVER_DURATION = Metric(
    slo_events.SERVER_DURATION, "s", "histogram", "First request byte readable to last response byte handed over."
)
CLIENT_DURATION = Metric(
    slo_events.CLIENT_DURATION, "s", "histogram", "First send call of the request to last read of the response."
)
PEER_DURATION = Metric(
    "latencyprobe.peer.duration", "s", "histogram", "Duration by the service at the other end, from records."
)
FIRST_ANSWER_DURATION = Metric(
    "latencyprobe.streaming.first_answer.duration",
    "s",
    "histogram",
    "Time to the first answer of streaming calls of HTTP/2, which are no SLI events; from records.",
)
STAGE_DURATION = Metric("latencyprobe.stage.duration", "s", "histogram", "Duration of each stage, from records.")
NETWORK_DURATION = Metric(
    "latencyprobe.network.duration",
    "s",
    "histogram",
    "Network share of joined pairs: both ways, without the hosts; from records.",
)
TCP_RTT = Metric(
    "latencyprobe.tcp.rtt", "s", "histogram", "Smoothed round trip time at the end of each exchange, from records."
)
TCP_RETRANSMITS = Metric(
    "latencyprobe.tcp.retransmits",
    "{segment}",
    "counter",
    "Segments sent again, by reason: from records, and `unrecorded` for those whose record was lost; the sum is exact.",
)
TCP_RETRANSMITS_FAILED = Metric(
    "latencyprobe.tcp.retransmits.failed",
    "{attempt}",
    "counter",
    "Attempts to send again that failed, by error; from records.",
)
TCP_RETRANSMITS_SPURIOUS = Metric(
    "latencyprobe.tcp.retransmits.spurious", "{segment}", "counter", "Segments sent again in vain, by how it was found."
)
TCP_SENT_SEGMENTS = Metric(
    "latencyprobe.tcp.sent.segments", "{segment}", "counter", "Segments with data that were sent, retransmits included."
)
TCP_SENT_SIZE = Metric("latencyprobe.tcp.sent.size", "By", "counter", "Bytes that were sent, retransmits included.")
TCP_RETRANSMITTED_SEGMENTS = Metric(
    "latencyprobe.tcp.retransmitted.segments",
    "{segment}",
    "counter",
    "Segments that were sent again, those of the handshake and a bare FIN included.",
)
TCP_RETRANSMITTED_SIZE = Metric("latencyprobe.tcp.retransmitted.size", "By", "counter", "Bytes that were sent again.")
TCP_UNSENT_EXCHANGES = Metric(
    "latencyprobe.tcp.unsent.exchanges",
    "{exchange}",
    "counter",
    "RPCs of whose message bytes were unsent when the last send call returned, by reason; from records, weighed.",
)
TCP_UNSENT_TIME = Metric(
    "latencyprobe.tcp.unsent.time",
    "s",
    "counter",
    "How long their last bytes waited in the kernel after that, by reason; from records, weighed.",
)
TCPRT_DURATION = Metric(
    "latencyprobe.tcprt.duration",
    "s",
    "histogram",
    "Tasks of TCP-RT: first byte of the request to the last ACK; from records.",
)
TCPRT_SERVER_DURATION = Metric(
    "latencyprobe.tcprt.server",
    "s",
    "histogram",
    "Tasks of TCP-RT: last byte of the request to first of the response; from records.",
)
TCPRT_RECEIVE_DURATION = Metric(
    "latencyprobe.tcprt.receive", "s", "histogram", "Tasks of TCP-RT: first to last byte of what came in; from records."
)
TCPRT_TASKS = Metric(
    "latencyprobe.tcprt.tasks", "{task}", "counter", "Tasks of TCP-RT by how they ended, from records."
)
SYSCALL_DURATION = Metric(
    "latencyprobe.syscall.duration",
    "s",
    "histogram",
    "Waits of servers' threads in system calls that took longer than `slowerThan`, by call; from records.",
)
OFFCPU_DURATION = Metric(
    "latencyprobe.offcpu.duration",
    "s",
    "histogram",
    "Waits of servers' threads for a CPU that took longer than `slowerThan`, by reason; from records.",
)
SLOW_REQUESTS = Metric(
    "latencyprobe.process.slow",
    "{request}",
    "counter",
    "Requests whose `process` took longer than `slowerThan`, by how much is known of where its time went.",
)
WAITS = Metric("latencyprobe.waits", "{wait}", "counter", "Waits longer than `slowerThan`, by whom they may explain.")
EXCHANGES = Metric("latencyprobe.exchanges", "{exchange}", "counter", "Ended exchanges by class of their connection.")
FAILURES = Metric("latencyprobe.exchange.failures", "{exchange}", "counter", "Exchanges that failed, by error.")
EXCLUDED = Metric(
    slo_events.EXCLUDED, slo_events.EXCLUDED_UNIT, "counter", "Exchanges that are no SLI event, by reason."
)
PAIRS = Metric(
    "latencyprobe.pairs",
    "{pair}",
    "counter",
    "Client and server halves joined, on this node or by the remote join; from records, weighed if sampled.",
)
SLO_EVENTS = Metric(
    slo_events.SLO_EVENTS,
    slo_events.UNIT,
    "counter",
    "SLI events, good and bad; from 0 again when the objective's definition changes.",
)
SLO_GOAL = Metric(
    slo_events.SLO_GOAL,
    "1",
    "gauge",
    "Share of events that an objective wants to be good; from each agent that counts them.",
)
SLO_THRESHOLD = Metric(slo_events.SLO_THRESHOLD, "s", "gauge", "What an event may take at most to be good.")
SLO_WINDOW = Metric(slo_events.SLO_WINDOW, "s", "gauge", "Length of the objective's window.")
HANDSHAKE_DURATION = Metric(
    "latencyprobe.tcp.handshake.duration",
    "s",
    "histogram",
    "RTT of the handshake: a client's SYN to its SYN-ACK, a server's SYN-ACK to the ACK; from records.",
)
CONNECT_DURATION = Metric(
    "latencyprobe.tcp.connect.duration",
    "s",
    "histogram",
    "What a client waited for a connection that opened, lost SYNs included; from records.",
)
CONNECTIONS = Metric(
    "latencyprobe.tcp.connections", "{connection}", "counter", "Connections that opened or failed to, by outcome."
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
CPU_PERIODS = Metric(
    "latencyprobe.container.cpu.periods",
    "{period}",
    "counter",
    "Periods of the CPU quota in which the container ran.",
)
CPU_THROTTLED_PERIODS = Metric(
    "latencyprobe.container.cpu.throttled_periods", "{period}", "counter", "Those of them in which it was throttled."
)
CPU_THROTTLED = Metric(
    "latencyprobe.container.cpu.throttled",
    "s",
    "counter",
    "For how long it was throttled, as the kernel tells: added up over CPUs.",
)
PRESSURE = Metric(
    "latencyprobe.container.pressure",
    "s",
    "counter",
    "For how long its tasks waited for a resource (PSI); for the CPU, time of being throttled included.",
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
SPANS_UNNAMED = Metric(
    "latencyprobe.agent.spans.unnamed",
    "{span}",
    "counter",
    "Spans sent without the names of their programs' functions: too many waited for these, or the agent ended.",
)
AGENT_FAILURES = Metric(
    "latencyprobe.agent.failures",
    "{failure}",
    "counter",
    "Times that a part of the agent raised and was left out; the others went on.",
)
SLI_ROWS_DROPPED = Metric(
    "latencyprobe.agent.sli_rows.dropped",
    "{row}",
    "counter",
    "SLI counts of an objective and minute that the directory never gets, by reason: docs/design/directory.md.",
)
SLI_ROWS_WAITING = Metric(
    "latencyprobe.agent.sli_rows.waiting", "{row}", "gauge", "SLI counts of objectives and minutes that wait for it."
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
CALL_OUTCOMES = Metric(
    "latencyprobe.agent.calls",
    "{half}",
    "counter",
    "Client halves by what became of them in the join with what their thread served: docs/evidence.md.",
)
SPANS = Metric(
    "latencyprobe.agent.spans",
    "{span}",
    "counter",
    "Spans by what became of them: `left_out` without child spans of stages, `delivered` and `dropped` with them.",
)
DATA_POINTS = Metric(
    "latencyprobe.agent.data_points",
    "{data_point}",
    "counter",
    "Data points of metrics by what became of them: `delivered` or `dropped`, which with delta temporality are lost.",
)
EXPORT_ERRORS = Metric("latencyprobe.agent.export.errors", "{request}", "counter", "Failed export attempts.")
SERIES_OVERFLOW = Metric(
    "latencyprobe.agent.series.overflow",
    "{series}",
    "counter",
    "Series folded into `other`, or left out, for want of room, each once; of whose LatencyProbes.",
)
COUNTS_KEYS = Metric(
    "latencyprobe.agent.counts.keys",
    "{key}",
    "gauge",
    "Keys of the kernel's table of counts (target set, role, cgroup), of some 1,024; of whose LatencyProbes.",
)
PLAN_AGE = Metric(
    "latencyprobe.agent.plan.age", "s", "gauge", "Time since directory and API server last confirmed the plan."
)
DRAIN_LAG = Metric(
    "latencyprobe.agent.drain.lag", "s", "gauge", "Longest time between two reads of the ring since the last export."
)
OUTBOX_SIZE = Metric("latencyprobe.agent.outbox.size", "By", "gauge", "Telemetry waiting for the collector.")
PRESSURE_UNREAD = Metric(
    "latencyprobe.agent.pressure.unread",
    "{container}",
    "gauge",
    "Containers (or processes) with exchanges of which it is not known what held them up, by reason or by kind.",
)
CPU_TIME = Metric("process.cpu.time", "s", "counter", "CPU time of the agent.")
MEMORY = Metric("process.memory.usage", "By", "gauge", "Resident memory of the agent.")

ATTRIBUTES = tuple(value for value in dict(globals()).values() if isinstance(value, Attribute))
EVENTS = tuple(value for value in dict(globals()).values() if isinstance(value, Event))
METRICS = tuple(value for value in dict(globals()).values() if isinstance(value, Metric))
