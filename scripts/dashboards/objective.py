"""One objective: what it asks for, what is left of its budget, how fast it burns beside the alerts' factors."""

from fractions import Fraction

from grafana_foundation_sdk.builders.dashboard import Dashboard
from grafana_foundation_sdk.builders.timeseries import Panel

from dashboards.panels import OBJECTIVE, Query, chart, dashed, of_answer, of_label, page, tile
from dashboards.queries import (
    CLUSTER,
    NAMESPACE,
    ONE_TARGET,
    PERSPECTIVE,
    PROBE,
    TARGET,
    asked,
    bad_share,
    burn_rate,
    factor,
    of,
    quantile,
    rate,
)
from dashboards.queries import (
    OBJECTIVE as NAME,
)
from latencyprobe import slo_events
from latencyprobe.rules import promql
from latencyprobe.slo.windows import HOUR_S, Alert, alerts
from latencyprobe_agent.vocabulary import conventions as names

HERE = f'{ONE_TARGET},{NAME}="$objective",{PERSPECTIVE}="$perspective"'
WINDOW = "${window}s"
ROWS = alerts("30d", Fraction(999_999, 1_000_000))  # whose factors those of other windows are made of
SLOW_S = 6 * HOUR_S  # windows from here on hold so many samples that a point in 5 minutes must do


def build() -> Dashboard:
    """Return the dashboard."""
    goal = asked(names.SLO_GOAL, HERE, "")
    outcome = promql.label(names.OUTCOME)
    return page(
        OBJECTIVE,
        "Objective",
        "One latency objective: its goal, the error budget of its window, burn rates beside the factors of its alerts, "
        " and the latencies behind them.",
        _variables(),
        [
            tile("Goal", "percentunit", goal, told="Share of RPCs that are to be good.", width=4),
            tile(
                "Threshold",
                "s",
                asked(names.SLO_THRESHOLD, HERE, ""),
                told="A good RPC takes at most so long, and does not fail unless failures are allowed.",
            ),
            tile("Window", "s", asked(names.SLO_WINDOW, HERE, ""), told="The time that goal and budget are of."),
            tile(
                "Good, in the window",
                "percentunit",
                f"1 - {bad_share(HERE, WINDOW, '')}",
                told="Of what Prometheus has of the window: its retention may be shorter.",
            ),
            tile(
                "Budget left",
                "percentunit",
                f"1 - {burn_rate(HERE, WINDOW, '')}",
                told="Of the bad RPCs that the goal allows in the window; below 0 the objective is violated. The "
                "LatencyReport has the figure of the operator's own store, which also knows since when.",
                steps=[(None, "red"), (0, "orange"), (0.25, "green")],
            ),
            tile(
                "Events, in the window",
                "short",
                f"sum(increase({of(names.SLO_EVENTS, HERE)}[{WINDOW}]))",
                told="Good and bad RPCs.",
            ),
            *map(_burning, ROWS),
            chart(
                "Good and bad RPCs",
                "reqps",
                Query(rate(of(names.SLO_EVENTS, HERE), outcome), f"{{{{{outcome}}}}}"),
                told="Events that the objective judges.",
            ),
            dashed(
                chart(
                    "Good RPCs",
                    "percentunit",
                    Query(f"1 - {bad_share(HERE, '$__rate_interval', '')}", "good"),
                    Query(f"1 - {bad_share(HERE, '1h', '')}", "good, of the last hour"),
                    Query(goal, "goal"),
                    told="Share of good RPCs beside the goal.",
                    at_most=1,
                ),
                "goal",
            ),
            dashed(
                chart(
                    "Duration and threshold",
                    "s",
                    *(Query(quantile(q / 100, _durations()), f"p{q:g}", exemplars=q == 99) for q in (50, 90, 99, 99.9)),
                    Query(asked(names.SLO_THRESHOLD, HERE, ""), "threshold"),
                    told="Durations of the target's RPCs as the objective's end of the connection sees them.",
                ),
                "threshold",
            ),
            chart(
                "Duration by service, p99",
                "s",
                Query(quantile(0.99, _durations(), "job"), "{{job}}", exemplars=True),
                told="Of workloads: the target's own, or its callers where the objective judges these.",
            ),
        ],
    )


def _variables() -> list[object]:
    variables, matchers = [of_label("cluster", of(names.SLO_GOAL), "cluster", everything=True)], CLUSTER
    for name, label_ in (
        ("namespace", NAMESPACE),
        ("probe", PROBE),
        ("target", TARGET),
        ("objective", NAME),
        ("perspective", PERSPECTIVE),
    ):
        variables.append(of_label(name, of(names.SLO_GOAL, matchers), label_))
        matchers += f',{label_}="${name}"'
    return [*variables, of_answer("window", asked(names.SLO_WINDOW, HERE, ""), r"/\} (\d+)/")]


def _burning(row: Alert) -> Panel:
    long, short = promql.duration(row.long_s), promql.duration(row.short_s)
    step = "5m" if row.long_s >= SLOW_S else ""
    panel = chart(
        f"Burn rate: {row.severity}, {long} and {short}",
        "none",
        Query(burn_rate(HERE, long, ""), long, step),
        Query(burn_rate(HERE, short, ""), short, step),
        Query(factor(HERE, row), "factor", step),
        told=f"The alert ({row.severity}) holds while both windows burn faster than the factor. No line: the "
        "objective's window has no such alert, or its goal can never reach it.",
        width=6,
    )
    return dashed(panel, "factor")


def _durations() -> str:
    """Return the histograms of the end that the objective judges: its name is a part of theirs."""
    of_server, of_client = of(names.SERVER_DURATION, ONE_TARGET), of(names.CLIENT_DURATION, ONE_TARGET)
    both = of_server.replace("_server_", "_${perspective}_")
    assert both == of_client.replace("_client_", "_${perspective}_")
    assert {slo_events.perspective(role) for role in ("Server", "Client")} == {"server", "client"}
    return both
