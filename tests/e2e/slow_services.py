"""Services that are slow for a known reason each, asked and measured, and what was told of them.

The tests of test_slow_hosts.py look at these.
"""

import os
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.bench.cluster import Cluster, wait_for
from tests.e2e.bench.jaeger import Jaeger, Span
from tests.e2e.bench.slow import PORT, Service, Shop, on_disk
from tests.e2e.bench.slow_disk import slow_disk
from tests.e2e.probes import is_true, latency_probe, latencyprobe, results

IOPS = 20  # of the disk
INDEX, INDEX_MIB = "index", 120  # more than who looks up in it may have in memory
EXPORT_MIB = 2
QUEUE_MS = 20  # for each of a crowd of four
LOCKED_MS = 80
TIMES = {
    "orders": 20,
    "search": 25,
    "pricing": 15,
    "web": 60,
    "front": 15,
    "thumbs": 15,
    "desk": 20,
    "ledger": 40,
    "export": 12,
    "login": 10,
}
WAYS = {"desk": "crowd", "export": "slowly", "login": "anew"}
ASKED = {**TIMES, "cart": TIMES["front"], "stock": TIMES["front"]}  # front asks cart, cart asks stock
CLIENTS = {"web", "ledger", "login"}  # a server's half knows nothing of the network, nor of connecting
CAUSES = {"orders": "fsync", "search": "page_fault", "pricing": "throttled", "stock": "futex", "thumbs": "on CPU"}
EVIDENCE = {"web": "unsent", "export": "unsent", "ledger": "retransmits", "login": "handshakes"}
DROPPED = {  # every fourth answer, and every connection's first SYN
    "ledger": f"ip saddr {{ip}} tcp sport {PORT} meta length > 200 numgen inc mod 4 == 3",
    "login": f"ip daddr {{ip}} tcp dport {PORT} tcp flags & (syn | ack) == syn numgen inc mod 2 == 0",
}
INDENT = 12  # of what the report says of an objective
SYMPTOMS = Path(__file__).parents[2] / "docs/symptoms.md"
PROBE = latency_probe(
    targets=[
        {"name": name, "podSelector": {"matchLabels": {"app": name}}, "ports": [PORT], "pause": "1m"} for name in ASKED
    ],
    objectives=[
        {
            "name": name,
            "target": name,
            "threshold": "30ms",
            "goal": "90",
            "minEvents": 10,
            "perspective": "Client" if name in CLIENTS else "Server",
        }
        for name in ASKED
    ],
    evidence={"syscalls": {}, "offcpu": {}},
)
Json = dict[str, Any]


@dataclass(frozen=True)
class Slow:
    """What was told of the services of one namespace, by their names. `reported`: results of the LatencyReport."""

    cluster: Cluster
    jaeger: Jaeger
    namespace: str
    served: dict[str, list[Span]]
    reported: dict[str, Json]

    def longest(self, service: str, part: str) -> Span:
        """The SERVER span with most of that part of `process`."""
        return max(self.served[service], key=lambda span: span.tags.get(f"latencyprobe.process.{part}", 0))

    def told(self, service: str, command: str) -> str:
        """What a command of docs/symptoms.md prints of a service, which is printed; for asserting, without its line
        breaks."""
        program, *words = shlex.split(command.replace("shop", self.namespace).replace("cart", service))
        print(f"$ {shlex.join([program, *words])}")
        if program == "kubectl":
            lines = [line for line in self.cluster.kubectl(*words).splitlines() if self.namespace in line]
        else:
            found = latencyprobe(*words)
            assert found.returncode == 0, found.stderr
            lines = found.stdout.splitlines()
        if words[0] == "report":
            begin = next(i for i, line in enumerate(lines) if line[INDENT:].startswith(f"shop/{service} "))
            rest = lines[begin + 1 :]
            end = next((i for i, line in enumerate(rest) if not line.startswith(" " * INDENT)), len(rest))
            lines = [lines[begin], *rest[:end]]
        print("\n".join(lines))
        return " ".join(" ".join(lines).split())


@dataclass(frozen=True)
class Symptom:
    """A row of docs/symptoms.md: phrases that `report` and `explain` print of a service, `…` for anything."""

    service: str
    reported: list[str]
    explained: list[str]


def way() -> list[str]:
    """The commands of docs/symptoms.md, without what it says of them."""
    (block,) = re.findall(r"```sh\n(.*?)```", SYMPTOMS.read_text(), re.DOTALL)
    return [line.partition("#")[0].strip() for line in block.splitlines()]


def symptoms() -> list[Symptom]:
    """The rows of docs/symptoms.md."""
    rows = [
        line.strip("|").split("|") for line in SYMPTOMS.read_text().splitlines() if re.match(r"\|.*\(`\w+`\)", line)
    ]
    phrases = [[re.findall(r"`([^`]+)`", cell) for cell in row] for row in rows]
    return [Symptom(service, reported, explained) for (service,), reported, explained, *_ in phrases]


def says(screen: str, phrase: str) -> bool:
    """Whether something on the screen is that phrase."""
    return re.search(".*?".join(map(re.escape, phrase.split("…"))), screen) is not None


@contextmanager
def slow_services(cluster: Cluster, jaeger: Jaeger) -> Iterator[Slow]:
    """All services, asked and measured."""
    with (
        cluster.namespace(f"slow-{os.urandom(2).hex()}") as namespace,
        slow_disk(cluster, "n2", INDEX, INDEX_MIB) as disk,
    ):
        shop = Shop(cluster, namespace)
        shop.open(
            Service("orders", "n2", ("disk", on_disk("log")), disk=disk.folder),
            Service("search", "n2", ("pages", on_disk(INDEX)), {"memory": "48Mi"}, disk=disk.folder),
            Service("pricing", "n2", ("compute", "20"), {"cpu": "50m"}),
            Service("web", "n2", ("two_writes",)),
            Service("front", "n2", ("ask", f"cart:{PORT}")),
            Service("cart", "n1", ("ask", f"stock:{PORT}")),
            Service("stock", "n2", ("lock", str(LOCKED_MS))),
            Service("thumbs", "n2", ("compute", "40")),
            Service("desk", "n2", ("queue", str(QUEUE_MS))),
            Service("ledger", "n2", ("nothing",)),
            Service("export", "n2", ("export", str(EXPORT_MIB))),
            Service("login", "n2", ("nothing",)),
            callers_node="n1",
        )
        for name in ("orders", "search"):
            (pod,) = cluster.pods(namespace, f"app={name}")
            disk.throttle(pod, IOPS)
        cluster.apply(PROBE, namespace)
        wait_for(lambda: is_true(cluster, namespace, "Ready"), "all is measured")

        with shop.dropping(**DROPPED):
            shop.ask(TIMES, WAYS)

        served = wait_for(
            lambda: all_served(jaeger, namespace),
            f"SERVER spans of all RPCs: {ASKED}",
            seen=lambda: lengths(served_spans(jaeger, namespace)),
        )
        reported = wait_for(lambda: all_reported(cluster, namespace), "a report that explains all RPCs")
        yield Slow(cluster, jaeger, namespace, served, reported)


def all_served(jaeger: Jaeger, namespace: str) -> dict[str, list[Span]]:
    """The SERVER spans of each service, once there is one of each RPC."""
    found = served_spans(jaeger, namespace)
    return found if lengths(found) == ASKED else {}


def served_spans(jaeger: Jaeger, namespace: str) -> dict[str, list[Span]]:
    """The SERVER spans of each service."""
    return {
        name: [
            span
            for trace in jaeger.traces(name, {"k8s.namespace.name": namespace})
            for span in trace
            if (span.service, span.kind) == (name, "server")
        ]
        for name in ASKED
    }


def lengths(found: dict[str, list[Span]]) -> dict[str, int]:
    return {name: len(spans) for name, spans in found.items()}


def all_reported(cluster: Cluster, namespace: str) -> dict[str, Json]:
    """The results by objective, once they have all events and what explains them."""
    found = results(cluster, namespace)
    counted = {name: one["events"] for name, one in found.items()} == ASKED
    accounts = all(share(found[name], "unknown") < 50 for name in CAUSES if counted)
    others = counted and found["front"].get("waitedFor") and all(hit(found[name], EVIDENCE[name]) for name in EVIDENCE)
    return found if counted and accounts and others else {}


def share(result: Json, cause: str) -> float:
    """Of `process`, in percent; all of it is unknown as long as nothing is told."""
    causes = {one["cause"]: float(one["share"]) for one in result.get("causes", [{"cause": "unknown", "share": "100"}])}
    return causes.get(cause, 0.0)


def hit(result: Json, signal: str) -> int:
    """How many events of an objective a signal explains."""
    return sum(one["events"] for one in result.get("evidence", ()) if one["signal"] == signal)


def waits(span: Span) -> list[Json]:
    """Its single long waits, longest first."""
    found = [dict(event) for event in span.events if event["event"] == "wait"]
    return sorted(found, key=lambda event: -event["latencyprobe.wait"])


def show(span: Span) -> None:
    """Print what a span says of where the time went."""
    print(f"{span.service}, {span.kind}, {span.duration_us / 1000:.1f} ms, trace {span.trace_id}")
    for name, value in sorted(span.tags.items()):
        if name.startswith(("latencyprobe.process", "latencyprobe.calls", "latencyprobe.tcp.unsent")):
            print(f"  {name}: {value}")
    for event in waits(span):
        print(f"  wait: { ({name: value for name, value in event.items() if name != 'event'}) }")
