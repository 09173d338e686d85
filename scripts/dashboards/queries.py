"""PromQL of what agents send by OTLP: names as Prometheus gives them, rates, quantiles, burn rates. Pure.

Histograms are native ones there, because agents send exponential ones.
"""

from latencyprobe import exclusions, slo_events
from latencyprobe.rules import promql
from latencyprobe.slo.windows import WINDOW_S, Alert
from latencyprobe_agent.vocabulary import conventions as names
from latencyprobe_agent.vocabulary.conventions import Metric

CLUSTER = 'cluster=~"$cluster"'  # of those who give each cluster's series this label; `.*` matches none, too
RATE = "[$__rate_interval]"
AGENT = f'{CLUSTER},job="latencyprobe-agent"'

NAMESPACE = promql.label(names.PROBE_NAMESPACE)
PROBE = promql.label(names.PROBE)
TARGET = promql.label(names.TARGET)
OBJECTIVE = promql.label(names.OBJECTIVE)
PERSPECTIVE = promql.label(names.PERSPECTIVE)
NODE = promql.label(names.K8S_NODE_NAME)
OF_OBJECTIVE = f"{NAMESPACE}, {PROBE}, {TARGET}, {OBJECTIVE}, {PERSPECTIVE}"
ONE_TARGET = f'{CLUSTER},{NAMESPACE}="$namespace",{PROBE}="$probe",{TARGET}="$target"'  # that a page's variables name
_BAD = f'{promql.label(names.OUTCOME)}="{slo_events.BAD}"'
_AMBIGUOUS = "|".join(one.name for one in exclusions.ALL if one.ambiguous)


def of(metric: Metric, *matchers: str) -> str:
    """Return a selector of the series that a metric becomes."""
    return f"{promql.series(metric.name, metric.unit, metric.kind)}{{{','.join(matchers)}}}"


def rate(selector: str, by: str = "") -> str:
    """Return the rate of counters or histograms, added up by these labels."""
    return f"sum by ({by}) (rate({selector}{RATE}))"


def quantile(share: float, selector: str, by: str = "") -> str:
    """Return a quantile of native histograms, in their unit."""
    return f"histogram_quantile({share:g}, {rate(selector, by)})"


def mean(selector: str, by: str) -> str:
    """Return the mean of native histograms, in their unit."""
    return f"histogram_sum({rate(selector, by)})\n/ histogram_count({rate(selector, by)})"


def bad_share(matchers: str, window: str, by: str = OF_OBJECTIVE) -> str:
    """Return the share of bad events in a window; none where there were no events."""
    events = f"sum by ({by}) (increase({of(names.SLO_EVENTS, matchers)}[{window}]))"
    bad = f"sum by ({by}) (increase({of(names.SLO_EVENTS, matchers, _BAD)}[{window}]))"
    return f"{bad}\n/ ({events} > 0)"


def asked(metric: Metric, matchers: str, by: str = OF_OBJECTIVE) -> str:
    """Return what objectives ask for: each agent that counts for one says the same."""
    return f"max by ({by}) ({of(metric, matchers)})"


def burn_rate(matchers: str, window: str, by: str = OF_OBJECTIVE) -> str:
    """Return how many times faster than the goal allows bad events came in a window."""
    return f"{bad_share(matchers, window, by)}\n/ (1 - {asked(names.SLO_GOAL, matchers, by)})"


def factor(matchers: str, row: Alert) -> str:
    """Return the factor of a row of the alerts' table, for one objective; nothing where its window skips the row, or
    its goal can never reach it. `row`: as it applies to 30 days, for which `slo.windows` has the workbook's factors."""
    window, goal = asked(names.SLO_WINDOW, matchers, ""), asked(names.SLO_GOAL, matchers, "")
    of_30d = promql.decimal(row.factor)
    scaled = f"{window} * {of_30d} / {WINDOW_S['30d']}"
    workbook = f"(({window} == {WINDOW_S['28d']} or {window} == {WINDOW_S['30d']}) * 0 + {of_30d})"
    others = f"(({scaled} > 1) and ({window} >= {4 * row.long_s}))"
    return f"({workbook} or {others}) < 1 / (1 - {goal})"


def coverage(matchers: str, by: str) -> str:
    """Return the share of RPCs that could be measured: the rest could not be told from what is no RPC."""
    measured = " + ".join(
        f"(histogram_count({rate(of(metric, matchers), by)}) or {nothing})"
        for metric, nothing in (
            (names.SERVER_DURATION, f"0 * {rate(of(names.EXCHANGES, matchers), by)}"),
            (names.CLIENT_DURATION, f"0 * {rate(of(names.EXCHANGES, matchers), by)}"),
        )
    )
    reason = f'{promql.label(names.REASON)}=~"{_AMBIGUOUS}"'
    hidden = f"({rate(of(names.EXCLUDED, matchers, reason), by)} or 0 * {rate(of(names.EXCHANGES, matchers), by)})"
    return f"1 - {hidden}\n/ ({measured} + {hidden} > 0)"


def of_nodes(expression: str, by: str = "") -> str:
    """Return series of agents by their nodes (and these labels), for the nodes that are chosen."""
    info = f'target_info{{{AGENT},{NODE}=~"$node"}}'
    labels = ", ".join(filter(None, (NODE, by)))
    return f"sum by ({labels}) (\n  {expression}\n  * on (cluster, job, instance) group_left ({NODE}) {info}\n)"
