"""What a namespace's RPCs do: objectives, load, latency, errors, coverage."""

from grafana_foundation_sdk.builders.dashboard import Dashboard

from dashboards.panels import AGENTS, OBJECTIVE, OVERVIEW, STAGES, Column, Query, chart, of_label, page, rows, tile
from dashboards.queries import (
    CLUSTER,
    NAMESPACE,
    OF_OBJECTIVE,
    PERSPECTIVE,
    PROBE,
    TARGET,
    asked,
    bad_share,
    burn_rate,
    coverage,
    mean,
    of,
    quantile,
    rate,
)
from dashboards.queries import (
    OBJECTIVE as NAME,
)
from latencyprobe.rules.promql import label
from latencyprobe_agent.vocabulary import conventions as names

HERE = f'{CLUSTER},{NAMESPACE}=~"$namespace"'
BY_TARGET, TARGETS = f"{NAMESPACE}, {PROBE}, {TARGET}", f"{{{{{NAMESPACE}}}}}/{{{{{PROBE}}}}}/{{{{{TARGET}}}}}"
_FIELDS = {"namespace": NAMESPACE, "probe": PROBE, "target": TARGET, "perspective": PERSPECTIVE}
LINK = f"/d/{OBJECTIVE}?${{__url_time_range}}&${{datasource:queryparam}}&var-objective=${{__value.text}}&" + "&".join(
    f"var-{name}=${{__data.fields.{name.capitalize()}}}" for name in _FIELDS
)


def build() -> Dashboard:
    """Return the dashboard."""
    burning = f"count({burn_rate(HERE, '1h')} > 1) or vector(0)"
    reason = label(names.ERROR_TYPE)
    return page(
        OVERVIEW,
        "Namespace",
        "RPCs of the LatencyProbes of a namespace: which objectives burn, which targets are slow or fail.",
        [
            of_label("cluster", of(names.EXCHANGES), "cluster", everything=True),
            of_label("namespace", of(names.EXCHANGES, CLUSTER), NAMESPACE, everything=True),
        ],
        [
            tile(
                "Objectives",
                "none",
                f"count({asked(names.SLO_GOAL, HERE)})",
                told="Objectives that agents count events for now.",
            ),
            tile(
                "Burning too fast",
                "none",
                burning,
                told="Objectives whose bad RPCs of the last hour came faster than their goals allow.",
                steps=[(None, "green"), (1, "red")],
            ),
            tile(
                "RPCs",
                "reqps",
                f"sum({rate(of(names.EXCHANGES, HERE))})",
                told="Ended exchanges, each counted at every end that is measured.",
            ),
            tile(
                "Failed",
                "percentunit",
                f"(sum({rate(of(names.FAILURES, HERE))}) or vector(0)) / (sum({rate(of(names.EXCHANGES, HERE))}) > 0)",
                told="Share of exchanges that failed: reset, timed out, unanswered, given up.",
            ),
            tile(
                "Server's p99",
                "s",
                quantile(0.99, of(names.SERVER_DURATION, HERE)),
                told="Of all targets together.",
            ),
            tile(
                "Coverage",
                "percentunit",
                coverage(HERE, ""),
                told="Share of turns that are RPCs, or known to be none. What is missing could not be told apart; "
                "below 90 % a report says Incomplete.",
                steps=[(None, "red"), (0.9, "green")],
            ),
            rows(
                "What objectives ask for and get",
                {
                    NAMESPACE: "Namespace",
                    PROBE: "Probe",
                    TARGET: "Target",
                    PERSPECTIVE: "Perspective",
                    NAME: "Objective",
                },
                [
                    Column("Goal", "percentunit", asked(names.SLO_GOAL, HERE)),
                    Column("Good, in this range", "percentunit", f"1 - {bad_share(HERE, '$__range')}"),
                    Column("Threshold", "s", asked(names.SLO_THRESHOLD, HERE)),
                    Column("Burn rate 1 h", "none", burn_rate(HERE, "1h"), 2),
                    Column("Burn rate 6 h", "none", burn_rate(HERE, "6h"), 2),
                    Column("Events, in this range", "short", _events("$__range")),
                ],
                told="A burn rate of 1 spends exactly the error budget of the "
                "objective's window. The objective's name leads to its budget and alerts.",
                link=LINK,
            ),
            chart(
                "Burn rate, 1 h",
                "none",
                Query(burn_rate(HERE, "1h"), f"{TARGETS}: {{{{{NAME}}}}}, {{{{{PERSPECTIVE}}}}}"),
                told="How many times faster than the goal allows bad RPCs came in the hour before.",
            ),
            chart(
                "RPCs by target",
                "reqps",
                Query(rate(of(names.EXCHANGES, HERE, f'{label(names.ROLE)}="server"'), BY_TARGET), TARGETS),
                told="Ended exchanges as servers saw them.",
            ),
            chart(
                "Server's duration, p99",
                "s",
                Query(quantile(0.99, of(names.SERVER_DURATION, HERE), BY_TARGET), TARGETS, exemplars=True),
                told="First request byte readable to last response byte handed over.",
            ),
            chart(
                "Callers' duration, p99",
                "s",
                Query(quantile(0.99, of(names.CLIENT_DURATION, HERE), BY_TARGET), TARGETS, exemplars=True),
                told="First send call of the request to last read of the response: with the network, and with what "
                "the caller itself was slow to send and read.",
            ),
            chart(
                "Failures",
                "reqps",
                Query(rate(of(names.FAILURES, HERE), f"{BY_TARGET}, {reason}"), f"{TARGETS}: {{{{{reason}}}}}"),
                told="Exchanges that failed, by error.",
            ),
            chart(
                "Where servers' time goes",
                "s",
                Query(
                    mean(of(names.STAGE_DURATION, HERE, f'{label(names.ROLE)}="server"'), label(names.STAGE)),
                    f"{{{{{label(names.STAGE)}}}}}",
                ),
                told=f"Mean of each stage. By target, and of callers: dashboard {STAGES}.",
            ),
            chart(
                "Turns that are no RPC",
                "reqps",
                Query(rate(of(names.EXCLUDED, HERE), label(names.REASON)), f"{{{{{label(names.REASON)}}}}}"),
                told="Neither good nor bad, by reason (docs/telemetry.md).",
            ),
            chart(
                "Coverage by target",
                "percentunit",
                Query(coverage(HERE, BY_TARGET), TARGETS),
                told=f"See the figure above. What agents lose besides: dashboard {AGENTS}.",
                at_most=1,
            ),
        ],
    )


def _events(window: str) -> str:
    return f"sum by ({OF_OBJECTIVE}) (increase({of(names.SLO_EVENTS, HERE)}[{window}]))"
