"""One target: which stage takes the time, callers beside server, the network, and what TCP and the container did."""

from grafana_foundation_sdk.builders.dashboard import Dashboard
from grafana_foundation_sdk.builders.timeseries import Panel
from grafana_foundation_sdk.models.common import StackingMode

from dashboards.panels import STAGES, Query, chart, of_label, page
from dashboards.queries import CLUSTER, NAMESPACE, ONE_TARGET, PROBE, TARGET, mean, of, quantile, rate
from latencyprobe.rules.promql import label
from latencyprobe_agent.vocabulary import conventions as names
from latencyprobe_agent.vocabulary.conventions import Metric

ROLE, STAGE, PEER = label(names.ROLE), label(names.STAGE), label(names.SERVICE_PEER_NAME)
SERVER, CLIENT = f'{ROLE}="server"', f'{ROLE}="client"'


def build() -> Dashboard:
    """Return the dashboard."""
    variables, matchers = [of_label("cluster", of(names.EXCHANGES), "cluster", everything=True)], CLUSTER
    for name, label_ in (("namespace", NAMESPACE), ("probe", PROBE), ("target", TARGET)):
        variables.append(of_label(name, of(names.EXCHANGES, matchers), label_))
        matchers += f',{label_}="${name}"'
    return page(
        STAGES,
        "Stages",
        "Where the time of a target's RPCs went: stages of server and callers, the network between them, TCP, and what "
        "held up the containers.",
        variables,
        [
            *("Stages", *_stages("server", SERVER), *_stages("callers", CLIENT)),
            *("Callers and network", *_between()),
            *("TCP", *_tcp()),
            *("Containers", *_containers()),
        ],
    )


def _stages(end: str, role: str) -> list[Panel]:
    stages, shown = of(names.STAGE_DURATION, ONE_TARGET, role), f"{{{{{STAGE}}}}}"
    return [
        chart(
            f"Mean of each stage: {end}",
            "s",
            Query(mean(stages, STAGE), shown),
            told="Stacked they are the mean duration. What each is: docs/measurement.md.",
            stacked=StackingMode.NORMAL,
            width=8,
        ),
        chart(
            f"Share of each stage: {end}",
            "percentunit",
            Query(f"histogram_sum({rate(stages, STAGE)})", shown),
            told="Of all the time that RPCs took.",
            stacked=StackingMode.PERCENT,
            width=8,
        ),
        chart(
            f"p99 of each stage: {end}",
            "s",
            Query(quantile(0.99, stages, STAGE), shown, exemplars=True),
            told="Of different RPCs: they add up to nothing.",
            width=8,
        ),
    ]


def _between() -> list[Panel]:
    server, client = of(names.SERVER_DURATION, ONE_TARGET), of(names.CLIENT_DURATION, ONE_TARGET)
    network = of(names.NETWORK_DURATION, ONE_TARGET)
    joined = label(names.JOINED)
    return [
        chart(
            "Callers beside server",
            "s",
            *(
                Query(quantile(q, duration), f"{end} p{100 * q:g}", exemplars=q == 0.99)
                for end, duration in (("callers", client), ("server", server))
                for q in (0.5, 0.99)
            ),
            told="What lies between them is the network, and what callers are slow to send and to read.",
        ),
        chart(
            "Network",
            "s",
            Query(quantile(0.5, network, joined), f"p50, {{{{{joined}}}}}"),
            Query(quantile(0.99, network, joined), f"p99, {{{{{joined}}}}}"),
            told="Both ways, without the hosts, of pairs whose halves met. `local`: on one node, all RPCs; `remote`: "
            "between nodes, the slow and failed ones alone.",
        ),
        chart(
            "Server's duration by caller, p99",
            "s",
            Query(
                f"topk(10, {quantile(0.99, of(names.PEER_DURATION, ONE_TARGET, SERVER), PEER)})",
                f"{{{{{PEER}}}}}",
                exemplars=True,
            ),
            told="The ten slowest services at the other end.",
        ),
        chart(
            "RPCs by class of connection",
            "reqps",
            Query(rate(of(names.EXCHANGES, ONE_TARGET, SERVER), label(names.CLASS)), f"{{{{{label(names.CLASS)}}}}}"),
            told="How connections take turns: `pipelined` and `multiplexed` ones are counted, and not measured.",
        ),
    ]


def _tcp() -> list[Panel]:
    reason = label(names.REASON)
    rtt = of(names.TCP_RTT, ONE_TARGET)
    return [
        chart(
            "Round trip time",
            "s",
            Query(quantile(0.5, rtt, ROLE), f"p50, {{{{{ROLE}}}}}"),
            Query(quantile(0.99, rtt, ROLE), f"p99, {{{{{ROLE}}}}}"),
            told="As the kernel smooths it, at the end of each exchange.",
            width=8,
        ),
        _by("Segments sent again", names.TCP_RETRANSMITS, reason, "By reason (docs/evidence.md)."),
        _by(
            "RPCs whose bytes waited to be sent",
            names.TCP_UNSENT_EXCHANGES,
            reason,
            "By what held them: Nagle, a cork, a window, pacing (docs/evidence.md).",
        ),
        chart(
            "Handshake",
            "s",
            Query(quantile(0.5, of(names.HANDSHAKE_DURATION, ONE_TARGET), ROLE), f"p50, {{{{{ROLE}}}}}"),
            Query(quantile(0.99, of(names.HANDSHAKE_DURATION, ONE_TARGET), ROLE), f"p99, {{{{{ROLE}}}}}"),
            told="Round trip of the handshakes of connections that opened.",
            width=8,
        ),
        _by("Connections", names.CONNECTIONS, label(names.OUTCOME), "That opened or failed to, by outcome."),
        _by("Connections that did not open", names.FAILED_CONNECTIONS, reason, "By reason."),
    ]


def _by(title: str, metric: Metric, by: str, told: str) -> Panel:
    unit = {"{exchange}": "reqps"}.get(metric.unit, "cps")
    return chart(title, unit, Query(rate(of(metric, ONE_TARGET), by), f"{{{{{by}}}}}"), told=told, width=8)


def _containers() -> list[Panel]:
    """Figures of containers have no target: theirs are those that have exchanges of it."""
    resource, level = label(names.RESOURCE), label(names.LEVEL)
    whose = f"and on (cluster, job, instance) {of(names.EXCHANGES, ONE_TARGET)}"
    some = of(names.PRESSURE, CLUSTER, f'{label(names.STALLED)}="some"')
    throttled, periods = of(names.CPU_THROTTLED_PERIODS, CLUSTER), of(names.CPU_PERIODS, CLUSTER)

    def per_second(selector: str) -> str:
        return f"sum by (job, {level}) (rate({selector}[$__rate_interval]) {whose})"

    return [
        chart(
            "Pressure",
            "percentunit",
            Query(
                f"avg by (job, {resource}) (rate({some}[$__rate_interval]) {whose})", f"{{{{job}}}}: {{{{{resource}}}}}"
            ),
            told="Share of time in which tasks of the containers waited for CPU, memory or I/O (PSI), server and "
            "callers alike; mean over containers.",
        ),
        chart(
            "CPU quota used up",
            "percentunit",
            Query(f"{per_second(throttled)}\n/ ({per_second(periods)} > 0)", f"{{{{job}}}}: {{{{{level}}}}}"),
            told="Share of the quota's periods in which a container was throttled; none without a quota.",
            at_most=1,
        ),
    ]
