"""LatencyProbe itself: what agents lose, how late they are, what they cost; and how the operator fares."""

from grafana_foundation_sdk.builders.dashboard import Dashboard
from grafana_foundation_sdk.builders.timeseries import Panel

from dashboards.panels import AGENTS, Query, chart, of_label, page, tile
from dashboards.queries import AGENT, CLUSTER, NODE, of, of_nodes
from latencyprobe.rules.promql import label
from latencyprobe_agent.vocabulary import conventions as names
from latencyprobe_agent.vocabulary.conventions import Metric

NODES = f"{{{{{NODE}}}}}"
OPERATOR = "latencyprobe_operator"
EXCHANGES = f'{label(names.SIGNAL)}="exchanges"'


def build() -> Dashboard:
    """Return the dashboard."""
    running = f'count(target_info{{{AGENT},{NODE}=~"$node"}})'
    return page(
        AGENTS,
        "Agents and operator",
        "LatencyProbe's own health: what agents lose, how late they are, what they cost; how the operator fares.",
        [
            of_label("cluster", of(names.RECORDS_READ), "cluster", everything=True),
            of_label("node", f"target_info{{{AGENT}}}", NODE, everything=True),
        ],
        [
            tile("Agents", "none", running, told="Whose metrics arrive.", width=6),
            tile(
                "Share of records lost",
                "percentunit",
                f"{_all(names.RECORDS_LOST, EXCHANGES)} / "
                f"({_all(names.RECORDS_READ)} + {_all(names.RECORDS_LOST, EXCHANGES)} > 0)",
                told="Of the records of RPCs, the share that the kernel could not hand over. Objectives and counts do "
                "not depend on records; spans and stages do.",
                width=6,
                steps=[(None, "green"), (0.001, "orange"), (0.01, "red")],
            ),
            tile(
                "Longest delay",
                "s",
                f"max({of(names.DRAIN_LAG, AGENT)})",
                told="Between two reads of the ring; a ring that is full meanwhile loses records.",
                width=6,
                steps=[(None, "green"), (2, "orange")],
            ),
            tile(
                "Oldest plan",
                "s",
                f"max({of(names.PLAN_AGE, AGENT)})",
                told="Since directory and API server last confirmed what an agent measures.",
                width=6,
                steps=[(None, "green"), (300, "orange")],
            ),
            "Records and spans",
            *_records(),
            "Export, counts and cost",
            *_cost(),
            "Operator",
            *_operator(),
        ],
    )


def _all(metric: Metric, *matchers: str) -> str:
    return f"sum(rate({of(metric, AGENT, *matchers)}[$__rate_interval]))"


def _counter(title: str, metric: Metric, by: str, told: str, *, unit: str = "cps", width: int = 8) -> Panel:
    """Return a counter's rate by node, and by one of its labels."""
    expr = of_nodes(f"rate({of(metric, AGENT)}[$__rate_interval])", by)
    legend = ", ".join(filter(None, (NODES, by and f"{{{{{by}}}}}")))
    return chart(title, unit, Query(expr, legend), told=told, width=width)


def _gauge(title: str, metric: Metric, told: str, unit: str, *, width: int = 8) -> Panel:
    return chart(title, unit, Query(of_nodes(of(metric, AGENT)), NODES), told=told, width=width)


def _records() -> list[Panel]:
    reason, outcome = label(names.REASON), label(names.OUTCOME)
    return [
        _counter("Records read", names.RECORDS_READ, "", "From the kernel's ring."),
        _counter(
            "Records lost",
            names.RECORDS_LOST,
            reason,
            "By reason: a ring or a map that was full, for one. What to do: docs/cluster.md.",
        ),
        _counter(
            "Records left out on purpose",
            names.RECORDS_EXCLUDED,
            reason,
            "Above `agent.recordsPerSecond` a sample comes, which metrics weigh.",
        ),
        _counter("Spans", names.SPANS, outcome, "By what became of them: `left_out` above `agent.spansPerSecond`."),
        _counter("Peers without a name", names.PEERS_UNRESOLVED, "", "Spans sent before their peer was known."),
        _counter("Evidence", names.EVIDENCE, outcome, "Records of evidence, by what became of them."),
        _gauge("Longest delay of a drain", names.DRAIN_LAG, "Between two reads of the ring.", "s"),
        _gauge("Age of the plan", names.PLAN_AGE, "Since directory and API server last confirmed it.", "s"),
        _counter("Halves asked of other nodes", names.REMOTE_JOINS, outcome, "Or by them, by what became of them."),
    ]


def _cost() -> list[Panel]:
    error, mode, namespace = label(names.ERROR_TYPE), label(names.CPU_MODE), label(names.PROBE_NAMESPACE)
    return [
        _counter("Failed exports", names.EXPORT_ERRORS, error, "Attempts, by status or exception."),
        _gauge("Waiting for the collector", names.OUTBOX_SIZE, "Telemetry; what is too much is dropped.", "bytes"),
        _counter("Failures of parts", names.AGENT_FAILURES, label(names.PART), "Times that a part was left out."),
        _gauge("SLI counts that wait", names.SLI_ROWS_WAITING, "For the operator's directory.", "short"),
        _counter("SLI counts dropped", names.SLI_ROWS_DROPPED, label(names.REASON), "Reports never have them."),
        _counter("Series folded into `other`", names.SERIES_OVERFLOW, namespace, "For want of room."),
        _counter("CPU", names.CPU_TIME, mode, "Cores, of the agent itself.", unit="none", width=12),
        _gauge("Memory", names.MEMORY, "Resident, of the agent itself.", "bytes", width=12),
    ]


def _operator() -> list[Panel]:
    """What it exposes at /metrics, and sends by OTLP with `otlp.operator`: the same names either way."""

    def gauge(name: str) -> str:
        return f"{OPERATOR}_{name}{{{CLUSTER}}}"

    def per_second(name: str, by: str) -> str:
        return f"sum by ({by}) (rate({OPERATOR}_{name}_total{{{CLUSTER}}}[$__rate_interval]))"

    return [
        chart(
            "Nodes",
            "none",
            Query(f"max by (state) ({gauge('nodes')})", "{{state}}"),
            told="That must measure, by what their agent does.",
            width=8,
        ),
        chart(
            "LatencyProbes and plan streams",
            "none",
            Query(f"max({gauge('probes')})", "LatencyProbes"),
            Query(f"max({gauge('plan_streams')})", "agents that read their plan"),
            told="Fewer streams than nodes: agents measure by the last plan that they have.",
            width=8,
        ),
        chart(
            "Evaluations",
            "cps",
            Query(per_second("evaluations", "result"), "{{result}}"),
            told="Of all objectives, for reports.",
            width=8,
        ),
        chart(
            "SLI counts",
            "cps",
            Query(per_second("sli_rows_accepted", ""), "stored"),
            Query(per_second("sli_rows_dropped", "reason"), "{{reason}}"),
            told="Counts of objectives and minutes that came from agents.",
            width=8,
        ),
        chart(
            "Failures",
            "cps",
            Query(per_second("loop_failures", "loop, error"), "{{loop}}: {{error}}"),
            Query(per_second("store_failures", "reason"), "store: {{reason}}"),
            told="Turns of the operator's loops that failed, and attempts to use the store.",
            width=8,
        ),
        chart(
            "Unconfirmed",
            "s",
            Query(f"max({gauge('unconfirmed_seconds')})", "age of what is served"),
            told="0 while the API server confirms it.",
            width=8,
        ),
    ]
