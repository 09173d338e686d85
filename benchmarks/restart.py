"""What a restart of the operator asks of it: the requests of all agents by second, in time that is played.

No network and no operator, so no machine is too slow for it: agents come back as the real one does (`Returning`) to an
operator that paces them as the real one does (`Pacing`). `python -m benchmarks.restart`; docs/design/scale.md.
"""

import heapq
import random
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import click
from rich.console import Console
from rich.table import Table

from latencyprobe_agent.directory.plans import _FIRST_RETRY_S, _LONGEST_RETRY_S
from latencyprobe_agent.directory.returning import Returning
from latencyprobe_operator.directory.pacing import Pacing

NODES = (500, 1_000, 2_000, 5_000)
LOST_S = 100.0  # when all streams end
STEADY_S = 60.0  # before that
LATER_S = 60.0  # after all are back
POST_RETRY_S = 2.0


class Found(NamedTuple):
    """`steady_per_s`: requests before; `most_per_s`: in one second from the moment when all were lost; `back_s`: until
    all streams are open, since the operator began to make plans; `of_agent`: requests of an agent until then."""

    steady_per_s: float
    most_per_s: int
    back_s: float
    of_agent: float


class _Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def simulated(nodes: int, away_s: float, plans_s: float, seed: int = 1) -> Found:
    """Return what is asked of an operator that is away for so long, then answers 503 until its plans are made."""
    chance, clock = random.Random(seed), _Clock()
    pacing = Pacing(lambda: nodes, lambda: 0.0)
    listens_s = LOST_S + away_s
    serves_s = listens_s + plans_s
    at: Counter[int] = Counter()
    back: dict[int, float] = {}
    agents = [Returning(f"node-{i}", clock) for i in range(nodes)]
    every = {"status": pacing.status_s, "identities": pacing.known_s, "sli": pacing.next_s}
    retries_s = [_FIRST_RETRY_S] * nodes
    due: list[tuple[float, int, str]] = []
    for node, agent in enumerate(agents):
        agent.opened()
        agent.told(pacing.return_s)
        heapq.heappush(due, (LOST_S, node, "lost"))
        for what, every_s in every.items():
            heapq.heappush(due, (LOST_S - STEADY_S + chance.uniform(0, every_s), node, what))
    newest = dict.fromkeys(((node, what) for node in range(nodes) for what in every), 0.0)

    def ask(node: int, what: str) -> bool:
        """Return whether a request is answered; count it if anybody listens."""
        if clock.now_s < LOST_S or clock.now_s >= listens_s:
            at[int(clock.now_s)] += 1
        return clock.now_s < LOST_S or clock.now_s >= serves_s

    def again(node: int, what: str, in_s: float) -> None:
        newest[node, what] = clock.now_s + in_s
        heapq.heappush(due, (clock.now_s + in_s, node, what))

    end_s = float("inf")
    while due and due[0][0] < end_s:
        clock.now_s, node, what = heapq.heappop(due)
        agent = agents[node]
        if what == "lost":
            agent.lost()
            heapq.heappush(due, (clock.now_s + agent.pause_s(retries_s[node]), node, "plan"))
        elif what == "plan":
            if ask(node, what):
                back[node] = clock.now_s
                agent.opened()
                agent.told(pacing.return_s)
                again(node, "status", chance.uniform(0, 1))  # the loop looks at its plan once a second
                again(node, "identities", chance.uniform(0, 0.1))
                if len(back) == nodes:
                    end_s = clock.now_s + LATER_S
            else:
                retries_s[node] = min(2 * retries_s[node], _LONGEST_RETRY_S)
                heapq.heappush(due, (clock.now_s + agent.pause_s(retries_s[node]), node, "plan"))
        elif clock.now_s >= newest[node, what]:  # else it was done earlier
            if agent.held():
                again(node, what, POST_RETRY_S * chance.uniform(0.5, 1.0))
            elif ask(node, what):
                again(node, what, every[what] * (chance.uniform(0.9, 1.0) if what == "sli" else 1.0))
            else:
                agent.failed("away")
                again(node, what, POST_RETRY_S)
    before = [at[second] for second in range(int(LOST_S - STEADY_S) + 20, int(LOST_S))]
    after = {second: count for second, count in at.items() if second >= LOST_S}
    until_s = max(back.values())
    asked = sum(count for second, count in after.items() if second <= until_s)
    return Found(sum(before) / len(before), max(after.values()), until_s - listens_s, asked / nodes)


def rows() -> Iterator[tuple[str, ...]]:
    """Yield what is told of each size and outage."""
    for nodes in NODES:
        for away_s, plans_s in ((3.0, nodes / 500), (30.0, nodes / 250), (120.0, nodes / 250)):
            found = simulated(nodes, away_s, plans_s)
            yield (
                f"{nodes:,}",
                f"{away_s:.0f} + {plans_s:.0f} s",
                f"{found.steady_per_s:.0f}",
                f"{found.most_per_s}",
                f"{found.most_per_s / found.steady_per_s:.1f}",
                f"{found.back_s:.0f} s",
                f"{found.of_agent:.1f}",
            )


@click.command()
def main() -> None:
    """Tell what a restart asks of the operator by the size of the cluster."""
    names = ("nodes", "away + planning", "requests per s", "most", "÷", "all back after", "requests of an agent")
    table = Table(*names)
    for row in rows():
        table.add_row(*row)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
