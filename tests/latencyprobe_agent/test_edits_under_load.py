"""A LatencyProbe is edited while real sockets are busy, under the real agent: it goes on, and counts what is due.

One port has load without an end. On another the truth generator does RPCs between two edits: thresholds of 60m and 1ns
leave no doubt which of them are good.
"""

import json
import subprocess
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from latencyprobe import parsing, planning, spec
from latencyprobe_agent.cli.audience import Export, audience
from latencyprobe_agent.config import Config
from latencyprobe_agent.identity.local import local_plan
from latencyprobe_agent.loop.agent import Agent
from latencyprobe_agent.loop.control import FakeControl
from latencyprobe_agent.measure.turn import Turn
from latencyprobe_agent.telemetry.endpoints import endpoints
from latencyprobe_agent.vocabulary.records import Role
from tests.support.otlp import OtlpSink, Point, Series, points
from tests.support.ports import free_port
from tests.support.waiting import wait_until
from tests.truth import workload

pytestmark = pytest.mark.root

BPF = Path(__file__).parents[2] / "build" / "bpf"
BUSY, EXACT, ELSEWHERE = (free_port() for _ in range(3))
RPCS = 150
SPEC: dict[str, Any] = {
    "targets": [{"name": "busy", "ports": [BUSY]}, {"name": "exact", "ports": [EXACT]}],
    "objectives": [
        {"name": "busy", "target": "busy", "threshold": "25ms", "goal": "99"},
        {"name": "fast", "target": "exact", "threshold": "60m", "goal": "99"},
    ],
}
UNTOUCHED: dict[str, Any] = {
    "targets": SPEC["targets"],
    "objectives": [
        {"name": "busy", "target": "busy", "threshold": "1ms", "goal": "99"},
        {"name": "still", "target": "exact", "threshold": "60m", "goal": "99"},
        {"name": "late", "target": "exact", "threshold": "3ns", "goal": "99", "perspective": "Client"},
    ],
}
ADDED = {"name": "added", "target": "exact", "threshold": "3ns", "goal": "99"}  # which the sets have already
EDITS: dict[str, Callable[[dict[str, Any]], object]] = {
    "threshold": lambda document: document["objectives"][1].update(threshold="1ns"),
    "the busy threshold": lambda document: document["objectives"][0].update(threshold="2ms"),
    "goal and window": lambda document: document["objectives"][1].update(goal="90", window="7d", minEvents=1),
    "errorsCountAsBad": lambda document: document["objectives"][1].update(errorsCountAsBad=False),
    "perspective": lambda document: document["objectives"][1].update(perspective="Client"),
    "objectives, one more": lambda document: document["objectives"].append(ADDED),
    "objectives, none": lambda document: document.update(objectives=[]),
    "setupTurns": lambda document: document["targets"][1].update(setupTurns=1),
    "tls": lambda document: document["targets"][1].update(tls=True),
    "pause": lambda document: document["targets"][1].update(pause="10ms"),
    "peers": lambda document: document["targets"][1].update(peers=True),
    "ports": lambda document: document["targets"][1].update(ports=[ELSEWHERE]),
    "role": lambda document: document["targets"][1].update(role="Client"),
    "spans": lambda document: document.update(spans={"slowerThan": "1ns", "ratio": "1", "maxPerSecond": 10}),
    "evidence": lambda document: document.update(evidence={"retransmits": False, "handshakes": False, "tcprt": True}),
    "clients": lambda document: document.update(clients={"scope": "None"}),
    "suspend": lambda document: document.update(suspend=True),
}
Definition = tuple[str, str]  # objective's id, hash


def probes(document: dict[str, Any]) -> list[spec.LatencyProbe]:
    kind = {"apiVersion": "latencyprobe.dev/v1alpha1", "kind": "LatencyProbe"}
    return [
        parsing.parse({**kind, "metadata": {"name": name}, "spec": one})
        for name, one in (("mine", document), ("other", UNTOUCHED))
    ]


def due(document: dict[str, Any], port: int) -> dict[Definition, Counter[str]]:
    """What each objective counts of the RPCs on `port`, on connections of one RPC each."""
    found = {}
    for probe in probes(document):
        targets = {one.name: one for one in probe.spec.targets}
        for objective, planned in zip(probe.spec.objectives, planning.objectives(probe), strict=True):
            if objective.target == "exact" and not probe.spec.suspend:
                # sockets that two targets share have the set-up turns of both
                exact = document["targets"][1]
                counted = port in targets["exact"].ports and not exact.get("setupTurns") and not exact.get("tls")
                outcome = "good" if objective.threshold == "60m" else "bad"
                found[planned.id, planned.hash] = Counter({outcome: RPCS} if counted else {})
    return found


class Editor(FakeControl):
    """The plan of the latest edit. `last`: the last turn with counts."""

    last: Turn | None = None

    def edit(self, document: dict[str, Any]) -> None:
        """Return when the agent has the plan in force."""
        self.current = local_plan(probes(document), "n1", b"k" * 32).plan
        wait_until(lambda: self.last and self.last.in_force.plan is self.current, "the plan is in force", 30)

    def counted(self) -> dict[Definition, Counter[str]]:
        found: dict[Definition, Counter[str]] = defaultdict(Counter)
        for row in tuple(self.rows):
            found[f"default/{row.probe}/{row.objective}", row.hash] += Counter(good=row.good, bad=row.bad)
        return found


class Watcher:
    """Listener: lets the editor know what is in force."""

    name = "watcher"

    def __init__(self, editor: Editor) -> None:
        self._editor = editor

    def take(self, turn: Turn) -> None:
        if turn.counts is not None:
            self._editor.last = turn

    def close(self) -> None:
        pass


class Collector:
    """The last value of each counter and histogram that the agent exported. `fallen`: those that fell though they did
    not start again."""

    def __init__(self, sink: OtlpSink) -> None:
        self.fallen: list[tuple[Series, Point, Point]] = []
        self._sink = sink
        self._read = 0
        self._series: dict[Series, Point] = {}

    def slo_events(self) -> dict[str, Counter[str]]:
        """Good and bad by objective's id, of the counters that started last."""
        self._take()
        starts: dict[str, int] = {}
        found: dict[str, Counter[str]] = {}
        for series, point in self._series.items():
            if series.metric == "latencyprobe.slo.events":
                of = {key.removeprefix("latencyprobe."): text for key, text in series.labels}
                name = f"default/{of['probe']}/{of['objective']}"
                if point.start_unix_ns > starts.get(name, 0):
                    starts[name], found[name] = point.start_unix_ns, Counter()
                if point.start_unix_ns == starts[name]:
                    found[name][of["outcome"]] += int(point.value)
        return found

    def _take(self) -> None:
        bodies = self._sink.bodies("metrics")[self._read :]
        self._read += len(bodies)
        for body in bodies:
            now = points([body])
            for series in now.keys() & self._series.keys():
                before, after = self._series[series], now[series]
                if (after.start_unix_ns, after.value) < (before.start_unix_ns, before.value):
                    self.fallen.append((series, before, after))
            self._series |= now


@contextmanager
def running(*words: object) -> Iterator[None]:
    """A mode of the truth generator that has no end."""
    process = subprocess.Popen([workload.build(), *map(str, words)], stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


@contextmanager
def serving(port: int) -> Iterator[None]:
    """A server that listens."""
    listening = ["ss", "-Hltn", f"sport = :{port}"]
    with running("serve", "--address", f"127.0.0.1:{port}", "--threads", 8):
        wait_until(lambda: subprocess.run(listening, check=True, capture_output=True).stdout, "it listens")
        yield


@contextmanager
def agent_with(editor: Editor, sink: OtlpSink) -> Iterator[Callable[[], None]]:
    """An agent in a thread of its own. Gives what ends it, at its leisure."""
    config = Config(
        node="n1",
        instance="i",
        bpf_dir=BPF,
        tick_s=0.1,
        upload_interval_s=0.1,
        metric_interval_s=0.2,
    )
    listening = audience(config, editor, Export(endpoints({}, sink.url)), lambda: (Watcher(editor),))
    agent = Agent(config, editor, listening)
    failures: list[BaseException] = []

    def run() -> None:
        try:
            agent.run()
        except BaseException as error:  # for the test's own thread
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()

    def end() -> None:
        agent.stop()
        thread.join(30)
        if failures:
            raise failures[0]
        assert not thread.is_alive()

    try:
        yield end
    finally:
        end()


def call(port: int) -> None:
    """`RPCS` RPCs on connections of one each."""
    options = {"address": f"127.0.0.1:{port}", "total": RPCS, "threads": 4, "single_percent": 100, "max_size": 2000}
    done = subprocess.run(workload.command("client", options), check=True, capture_output=True, text=True)
    assert json.loads(done.stdout.splitlines()[-1])["answered"] == RPCS


def test_every_edit_under_load_lets_the_agent_go_on_and_the_counts_be_what_the_client_did(otlp_sink: OtlpSink) -> None:
    editor, collector = Editor(), Collector(otlp_sink)
    ever: dict[Definition, Counter[str]] = defaultdict(Counter)
    since: dict[Definition, Counter[str]] = {}

    def edit_and_call(name: str, document: dict[str, Any]) -> None:
        nonlocal since
        editor.edit(document)
        since = {at: since.get(at, Counter()) for at in due(document, EXACT)}
        for port in (EXACT, ELSEWHERE):
            call(port)
            for at, events in due(document, port).items():
                ever[at] += events
                since[at] = since[at] + events

        def found() -> tuple[object, object]:
            counted, exported = editor.counted(), collector.slo_events()
            return {at: counted[at] for at in ever}, {at: exported.get(at[0]) for at, events in since.items() if events}

        expected = ever, {at: events for at, events in since.items() if events}
        with suppress(AssertionError):
            wait_until(lambda: found() == expected, name, 20)
        assert found() == expected, name

    with serving(BUSY), serving(EXACT), serving(ELSEWHERE), agent_with(editor, otlp_sink) as end:
        with running("load", "--address", f"127.0.0.1:{BUSY}", "--rate", 400, "--threads", 4, "--max-size", 2000):
            edit_and_call("at first", SPEC)
            for name, edit in EDITS.items():
                edited = deepcopy(SPEC)
                edit(edited)
                edit_and_call(name, edited)
                edit_and_call(f"{name}, back again", SPEC)
        end()
        last = editor.last

    assert last is not None
    assert last.counts is not None
    assert last.stats is not None
    assert not last.stats.failures
    assert collector.slo_events()
    assert collector.fallen == []
    # counts_full: the kernel had no memory at hand for the first exchange of a key, which is counted, but as nobody's
    # recursion: the kernel may skip a program
    assert not any(n for reason, n in last.counts.lost.items() if reason not in {"counts_full", "recursion"})
    of_busy = [i for i, one in last.in_force.rules.sets.items() if "default/other/busy" in one.targets]
    keys, values = last.counts.counts
    totals = values[np.isin(keys["target_set"], of_busy) & (keys["role"] == Role.SERVER)]
    rows = [row for row in editor.rows if (row.probe, row.objective) == ("other", "busy")]
    seen, events = sum(row.coverage.seen for row in rows), sum(row.good + row.bad for row in rows)
    print(
        f"{2 * len(EDITS)} edits, {len(of_busy)} target sets of the busy port, on which {events} of {seen} are events"
    )
    assert len(of_busy) >= 5
    assert (seen, events) == (totals["classes"].sum(), totals["outcomes"].sum())
    assert events > 1000
    assert all(min(row.good, row.bad, row.coverage.seen) >= 0 for row in rows)
