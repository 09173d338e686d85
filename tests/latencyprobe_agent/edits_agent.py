"""An agent turn by turn: the loop with all that listens to it, and what report and collector get. For test_edits.py."""

from collections import Counter, defaultdict
from typing import Any

from latencyprobe_agent.cli.live import figures
from latencyprobe_agent.config import Config
from latencyprobe_agent.guard import Guard
from latencyprobe_agent.loop.loop import Loop
from latencyprobe_agent.loop.status import Seen
from latencyprobe_agent.measure.turn import Turn
from latencyprobe_agent.sli.listener import SliRows
from latencyprobe_agent.telemetry.metrics import Metrics
from latencyprobe_agent.telemetry.outbox import FakeOutbox
from latencyprobe_agent.telemetry.selfmetrics import SelfMetrics
from latencyprobe_agent.telemetry.spans import Spans
from latencyprobe_agent.telemetry.waiting import WaitingRoom
from tests.latencyprobe_agent.edits_node import Kernel, Operator
from tests.latencyprobe_agent.edits_witness import Witness
from tests.support.otlp import Point, Series, points


class Watcher:
    """Listener: what the live line and the status make of a turn with counts."""

    name = "watcher"

    def __init__(self) -> None:
        self._seen = Seen()

    def take(self, turn: Turn) -> None:
        if turn.counts is not None:
            self._seen.targets(turn)
            figures(turn, 0)

    def close(self) -> None:
        pass


class Agent:
    """The loop with all that listens to it, turn by turn."""

    def __init__(self, loop: Loop, guard: Guard, operator: Operator, kernel: Kernel) -> None:
        self.operator, self.witness = operator, Witness()
        self._loop, self._guard, self._kernel = loop, guard, kernel
        self._sent = {"metrics": FakeOutbox(), "traces": FakeOutbox()}
        self._exported: dict[Series, Point] = {}
        self._last: dict[Series, Point] = {}
        loop.attachment.follow()
        self.plan = operator.plan()
        self.witness.follow(self.plan)
        config, start = Config(metric_interval_s=0.0), loop.parts.clock.now()
        room = WaitingRoom(identity_wait_s=0.0, join_wait_s=0.0, capacity=1000)
        own = SelfMetrics(self._sent, room, config, standalone=False)
        loop.listeners = (
            SliRows(operator.take, 0.0, operator.peers),
            Spans(self._sent["traces"], room, operator.peers, shared_key=False),
            Metrics(self._sent["metrics"], own, config, operator.peers, start=start._replace(unix_ns=1), delta=False),
            Watcher(),
        )

    def turn(self) -> None:
        """Some load, and what the loop does then."""
        self._kernel.load()
        self.witness.load(self.plan, self.plan)
        self._loop.drain()
        self._loop.tick()
        assert not self._guard.failures, self._guard.problems
        self._take_metrics()

    def edit(self, document: dict[str, Any], load_between: bool) -> None:
        """A new plan comes into force; also while the agent is at it, its sockets go on."""
        self.operator.edit(document)
        before, after = self.plan, self.operator.plan()

        def go_on() -> None:
            self._kernel.load()
            self.witness.load(before, after)

        self._kernel.when_told = go_on if load_between else lambda: None
        self.turn()
        self._kernel.when_told = lambda: None
        self.plan = after
        self.witness.follow(after)

    def end(self) -> None:
        self._loop.end()
        for listener in self._loop.listeners:
            listener.close()
        assert not self._guard.failures, self._guard.problems
        self._take_metrics()

    def counted(self) -> dict[tuple[str, str], Counter[str]]:
        """Good and bad by (objective's id, hash), as the report gets them."""
        found: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        for row in self.operator.rows:
            found[f"{row.namespace}/{row.probe}/{row.objective}", row.hash] += Counter(good=row.good, bad=row.bad)
        return found

    def exported(self) -> dict[str, Counter[str]]:
        """Good and bad by objective's id, as the collector gets them."""
        found: dict[str, Counter[str]] = defaultdict(Counter)
        for series, point in self._last.items():
            if series.metric == "latencyprobe.slo.events":
                of = {key.removeprefix("latencyprobe."): value for key, value in series.labels}
                found[f"shop/{of['probe']}/{of['objective']}"][of["outcome"]] += point.value
        return found

    def _take_metrics(self) -> None:
        """Look at every export: one may follow the other within a turn, before an edit and after it."""
        for body in self._sent["metrics"].bodies:
            now = points([body])
            for series in now.keys() & self._exported.keys():
                before, after = self._exported[series], now[series]
                assert after.value >= before.value or after.start_unix_ns > before.start_unix_ns, (
                    series,
                    before,
                    after,
                )
            self._exported |= now
            self._last = now
        self._sent["metrics"].bodies.clear()
