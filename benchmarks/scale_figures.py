"""What `make bench-scale` tells of a size, as figures and as rows of a table."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from rich.table import Table

from benchmarks.made_cluster import CLUSTER_SCOPE, Size


class Figures(NamedTuple):
    """What was seen of one size; times in s, memory in bytes.

    `connection`: memory of an idle connection; `alone`: without agents; `with_agents`: with them, before anything
    changed; `at_end`: after. `quiet_per_s`: requests of all agents while nothing changes, `quiet_cpu`: the operator's
    CPU of a core then. `offered_per_s`: pods to be replaced;
    `changes`: those that were; `writes`: to the API server meanwhile, by kind; `sent`:
    bytes of plan streams; `late`: pods that were in no plan 5 s after the last change. `restart_s`: from the start of
    another operator until every agent has its plan; `steady_per_s`, `restart_per_s`: requests of all agents while pods
    are replaced, and the most in one second of a restart.
    """

    size: Size
    first_plans_s: float
    agents_s: float
    plans_s: list[float]
    late: int
    differ: int
    answers_s: list[float]
    refused: int
    offered_per_s: float
    changes: int
    sent: int
    cpu: float
    quiet_cpu: float
    quiet_per_s: float
    writes: Counter[str]
    connection: float
    alone: int
    with_agents: int
    at_end: int
    restart_s: float
    steady_per_s: float
    restart_per_s: int


def _quantile(sorted_: Sequence[float], share: float) -> float:
    """Return a quantile, NaN of nothing."""
    return sorted_[min(int(share * len(sorted_)), len(sorted_) - 1)] if sorted_ else float("nan")


def rows(found: Figures) -> list[tuple[str, str]]:
    """Return what is told of a size: names and figures."""
    size, per_change = found.size, max(found.changes, 1)
    probes_ = f"{size.probes:,} + {min(CLUSTER_SCOPE, size.probes)}"
    answers = (f"{_quantile(found.answers_s, share) * 1e3:.0f}" for share in (0.5, 0.99))
    per_agent = (found.with_agents - found.alone) / size.nodes
    of_agent = f"{per_agent / 1e3:.0f} kB, of which two connections {2 * found.connection / 1e3:.0f} kB"
    cpu_of_change = (found.cpu - found.quiet_cpu) / found.offered_per_s
    cpu_of_request = found.quiet_cpu / max(found.quiet_per_s, 1)
    writes = f"{sum(found.writes.values()) / per_change:.2f}"
    kinds = ", ".join(f"{n} {kind}" for kind, n in sorted(found.writes.items()))
    return [
        ("pods / LatencyProbes + of Cluster scope", f"{size.pods:,} / {probes_}"),
        ("first plans after", f"{found.first_plans_s:.1f} s"),
        ("all agents have theirs after", f"{found.agents_s:.1f} s more"),
        ("pods replaced, per s", f"{found.changes:,}, {found.offered_per_s:.0f}"),
        ("pod ready → plan at its agent, p50", f"{_quantile(found.plans_s, 0.5):.2f} s"),
        ("... p99", f"{_quantile(found.plans_s, 0.99):.2f} s"),
        ("... not within 5 s of the last", f"{found.late}"),
        ("changes that were not the operator's plan", f"{found.differ}"),
        ("plan streams, per change", f"{found.sent / per_change / 1e3:.0f} kB"),
        ("counts of 20 objectives, answers p50 / p99", f"{' / '.join(answers)} ms"),
        ("... not taken", f"{found.refused} of {len(found.answers_s)}"),
        ("operator's CPU meanwhile; before", f"{found.cpu:.0%} of a core; {found.quiet_cpu:.0%}"),
        ("... for each change; request of an agent", f"{cpu_of_change * 1e3:.1f}; {cpu_of_request * 1e3:.2f} ms"),
        ("operator's memory alone", f"{found.alone / 1e6:.0f} MB"),
        ("... with agents", f"{found.with_agents / 1e6:.0f} MB"),
        ("... of each", of_agent),
        ("... at the end", f"{found.at_end / 1e6:.0f} MB"),
        ("writes to the API server, per change", f"{writes} ({kinds})" if kinds else writes),
        ("restart until all agents have their plans", f"{found.restart_s:.1f} s"),
        (
            "requests per s: quiet / steady / most at a restart",
            f"{found.quiet_per_s:.0f} / {found.steady_per_s:.0f} / {found.restart_per_s}",
        ),
    ]


def table(found: Sequence[Figures]) -> Table:
    """Return what is told of all sizes."""
    whole = Table("nodes", *(f"{one.size.nodes:,}" for one in found))
    for lines in zip(*map(rows, found), strict=True):
        whole.add_row(lines[0][0], *(figure for _, figure in lines))
    return whole
