"""Reports for the tests of their forms: one objective with all there is to tell, and hostile text everywhere."""

from typing import Any

import msgspec
from msgspec.structs import replace

from latencyprobe.report import build, model
from latencyprobe.slo.evaluate import State

HOSTILE = "\"'><script>alert(1)</script>[x](javascript:alert`1`)|@all {{ 7*7 }} &amp; =1+1 \u202e\n# x"
_PAIR = {
    "client_send": "12.3us",
    "network": "41.2ms",
    "server_read_delay": "1.02ms",
    "server_process": "18.4ms",
    "server_send": "300us",
    "client_read_delay": "2.5ms",
}
SLOW = model.Slow(
    "5" * 32,
    "2026-09-21T14:03:01.123Z",
    "63.4323ms",
    tuple(model.Stage(*stage) for stage in _PAIR.items()),
    "shop/cart",
    joined=True,
    evidence=(
        model.EvidenceSummary("unsent", "server nagle", 1, "41ms"),
        model.EvidenceSummary("retransmits", "rto", 2),
    ),
    waited_for=(model.WaitedFor("shop/redis:6379", 3, "17.1ms", "d" * 32),),
)
EXCLUSIONS = (model.Exclusion("overlap", 3001), model.Exclusion("push", 1899), model.Exclusion("setup", 301))
RICH = model.Result(
    *("checkout", "fast", "cart", "Client", "25ms", "99.9", "28d", State.VIOLATED, 60_000, 612, 1000),
    coverage=model.Coverage("88.1", 60_317, 4900, 301, 12, 41, 41_003, 1, "3h20m", EXCLUSIONS, 2003),
    updated="2026-09-21T14:13:00Z",
    sli="98.98",
    error_budget_remaining="-920",
    burn_rates=(
        model.BurnRate("page", "1h", "5m", "14.4", "Quiet", "10.2", None),
        model.BurnRate("page", "6h", "30m", "6", "Firing", "10.3", "10.4"),
    ),
    quantiles=model.Quantiles("562us", "4.1ms", "61.2ms", "812ms"),
    bad_by_stage=(
        model.BadStage("network", 431, "70.4", "12.4s"),
        model.BadStage("server_process", 181, "29.5", "7.1s"),
    ),
    evidence=(
        model.Explained("retransmits", 702, "1.17", 123, "20.1", "24.1s", lost=13),
        model.Explained("unsent", 93, "0.15", 92, "15.1", "3.2s"),
    ),
    pressure=(model.Pressure("throttled", "4.1", "18.3s", "73.8"), model.Pressure("io", "0.2", "1.4s")),
    slowest=(SLOW,),
    top_peers=(model.Peer("shop/frontend", 411), model.Peer("203.0.113.7", 71)),
    since="2026-09-21T13:13:00Z",
    waited_for=(model.Waited("shop/redis:6379", "20.4s", "85.1"),),
    causes=(model.Cause("recvfrom", "22.6s", "94.2"), model.Cause("unknown", "456ms", "5.8")),
    burn_down=model.BurnDown("2026-09-20T14:13:00Z", "6h", ("93.1", "41", "-300", "-920")),
    week_before=model.WeekBefore(58_000, 31, "99.94655", "46.5", "24.1ms", "server_process", "80.6"),
)
COVERAGE = model.Coverage("100", 1, 0, 0, 0, 0, 0, 0, "0s")
IDLE = model.Result(
    *("checkout", "idle", "cart", "Server", "25ms", "99", "28d", State.NO_DATA, 0, 0, 100),
    coverage=model.Coverage("100", *(0,) * 7, "0s"),
    updated="2026-09-21T14:13:00Z",
)


def document(*results: model.Result, namespace: str = "shop", omitted: int = 0) -> model.LatencyReport:
    """The report of these objectives."""
    counts = {state.column: sum(one.state is state for one in results) for state in State}
    return build.document(namespace, model.Report(counts, results, omitted))


def many() -> model.LatencyReport:
    """As many objectives as a report can have, of which one found no room."""
    results = (replace(RICH, objective=f"objective-{i}", slowest=()) for i in range(255))
    return document(RICH, *results, omitted=1)


def hostile() -> model.LatencyReport:
    """RICH with hostile text wherever somebody else chooses it, or another version may say something new."""
    chosen = {"probe", "objective", "target", "stage", "signal", "what", "peer", "cause", "kind", "error", "traceId"}

    def spoiled(value: Any, field: str = "") -> Any:
        if isinstance(value, dict):
            return {name: spoiled(one, name) for name, one in value.items()}
        if isinstance(value, list):
            return [spoiled(one) for one in value]
        return HOSTILE if field in chosen or (field == "reason" and value) else value

    result = msgspec.convert(
        spoiled(msgspec.to_builtins(replace(RICH, slowest=(SLOW, replace(SLOW, error="x"))))), model.Result
    )
    return document(result, replace(IDLE, state=State.INCOMPLETE, reason=HOSTILE), namespace=HOSTILE)
