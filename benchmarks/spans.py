"""What a span costs from the sampled half to the bytes of a request: ours beside the OpenTelemetry SDK, interleaved.

Both hand encoded requests to a sink that takes bytes, and say the same of the same exchanges: the SDK gets the ids'
parents, times, attributes and events that the official parser finds in our own requests (`sdk_spans.py`). Ours includes
the waiting room and the names of peers.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import click
import numpy as np

from benchmarks.compare import paired
from benchmarks.sdk_spans import Stock
from latencyprobe.plan import Identity, NodePlan, SpanPolicy, Target
from latencyprobe.plan import Role as Perspective
from latencyprobe_agent.directory.peers import FakePeers
from latencyprobe_agent.identity.resources import Resources, sdk
from latencyprobe_agent.measure.halves import Halves, halves
from latencyprobe_agent.measure.matches import packed
from latencyprobe_agent.measure.pairing import LocalJoin
from latencyprobe_agent.measure.rules import Rules, TargetSet
from latencyprobe_agent.measure.sampling import Reason, Sampled
from latencyprobe_agent.measure.turn import InForce, Turn, empty
from latencyprobe_agent.telemetry.outbox import FakeOutbox, Outbox
from latencyprobe_agent.telemetry.spans import Spans
from latencyprobe_agent.telemetry.waiting import WaitingRoom
from latencyprobe_agent.vocabulary.now import Now
from latencyprobe_agent.vocabulary.records import EXCHANGE, ExchangeClass, ExchangeFlags, Outcome, Role
from tests.support.exchanges import exchanges
from tests.support.otlp import spans as parsed

TURN = 5000  # halves: a tenth of a second at 50,000/s
POLICY = SpanPolicy(10**6, 1.0, 10**6)


class Mix(NamedTuple):
    """What the spans are of. `joined`: share of halves whose other half is measured too; `failed`: of exchanges."""

    spans: int = 10_000
    peers: int = 50
    resources: int = 30
    joined: float = 1.0
    failed: float = 0.02


class Pods(Resources):
    """Containers as Kubernetes describes them, by cgroup id."""

    by_process = False

    def attributes(self, owner: int) -> Mapping[str, str | int]:
        return pod(owner)

    def ended(self, owner: int) -> bool:
        return False


@cache
def pod(owner: int) -> Mapping[str, str | int]:
    name = f"cart-6d5b8c7f9-{owner:05d}"
    return {
        "k8s.namespace.name": "shop",
        "k8s.node.name": "node-1",
        "k8s.container.name": "app",
        "service.name": f"service-{owner}",
        "service.namespace": "shop",
        "service.version": "1.4.2",
        "service.instance.id": f"shop.{name}.app",
        "k8s.pod.name": name,
        "k8s.pod.uid": f"0b7e2f4c-8a52-4c57-9d1b-{owner:012d}",
        "k8s.deployment.name": "cart",
        "container.id": f"{owner:064x}",
        **sdk(),
    }


def cost_of_spans(spans: int, rounds: int, mix: Mix | None = None) -> dict[str, Any]:
    """CPU time of `spans` spans and their bytes per second, ours and the SDK's; `ratio`: of bytes per second, with its
    95 % interval over rounds; `span_ratio`: of spans per second."""
    mix = (mix or Mix())._replace(spans=spans)
    turns = list(turns_of(mix))
    ours(turns, kept := FakeOutbox())
    stock = Stock(parsed(kept.bodies))
    sizes = sum(map(len, kept.bodies)), stock.run()
    found, sides = np.zeros((2, rounds)), (partial(ours, turns, Taker()), stock.run)
    for i in range(rounds):
        for side in (0, 1) if i % 2 else (1, 0):
            found[side, i] = took_ns(sides[side])
    told = {}
    for name, ns, size in zip(("ours", "sdk"), found, sizes, strict=True):
        per_span = float(np.median(ns)) / spans
        told[name] = {
            "ns_per_span": per_span,
            "bytes_per_span": size / spans,
            "bytes_per_s": size / spans / per_span * 1e9,
        }
    spans_ratio = paired(found[1], found[0])
    more = sizes[0] / sizes[1]
    return {
        "mix": mix._asdict(),
        **told,
        "ratio": [more * of for of in (spans_ratio.median, spans_ratio.low, spans_ratio.high)],
        "span_ratio": [spans_ratio.median, spans_ratio.low, spans_ratio.high],
    }


def took_ns(run: Callable[[], object]) -> int:
    began = time.process_time_ns()
    run()
    return time.process_time_ns() - began


# -- ours


def turns_of(mix: Mix) -> Iterable[Turn]:
    """Turns whose halves all become spans, at least `mix.spans` of them."""
    target = Target("shop/p/cart", "shop", "p", "", "cart", Perspective.SERVER, (), 0, POLICY)
    in_force = InForce(
        NodePlan("node-1", 1, "", (target,), ()),
        Rules(sets={1: TargetSet((target.id,), (), 0, POLICY, "shop/p")}),
        Pods(),
    )
    rng = np.random.default_rng(1)
    for start in range(0, mix.spans, TURN):
        some = halves_of(mix, min(TURN, mix.spans - start), start, rng)
        reason = np.where(some.rec["outcome"] == Outcome.OK, Reason.RATIO, Reason.ERROR).astype(np.uint8)
        sampled = Sampled(some, some.trace_ids(b"key"), reason, np.full(len(some), 0.1))
        now = Now(10**12 + start * 10**6, 10**18)
        yield empty(now, in_force)._replace(halves=some, sampled=sampled, pairs=LocalJoin().join(some))


def halves_of(mix: Mix, count: int, start: int, rng: np.random.Generator) -> Halves:
    """Halves of exchanges: both of a share `mix.joined` of them, of the others the server's."""
    pairs = int(count * mix.joined / 2)
    place = start + np.concatenate([np.arange(pairs), np.arange(count - pairs)])
    role = np.repeat([Role.CLIENT, Role.SERVER], [pairs, count - pairs]).astype(np.uint8)
    stages = [rng.integers(1_000, 200_000, (4, count)) for _ in range(2)]
    stages[0][1] += 10**6  # a client waits longer than its server works
    batch = np.concatenate(
        [
            exchanges(int(np.count_nonzero(role == kind)), kind, stages=tuple(of[:, role == kind]), cgroup_id=0)
            for kind, of in zip((Role.CLIENT, Role.SERVER), stages, strict=True)
        ]
    ).astype(EXCHANGE)
    batch["request_offset"], batch["request_bytes"], batch["response_bytes"] = place * 100, 100, 1_000 + place % 3000
    peer = place % mix.peers
    batch["cgroup_id"] = np.where(role == Role.SERVER, place % mix.resources, 1_000 + peer % mix.resources)
    caller, server = addresses("10.1.0.0", peer), addresses("10.2.0.0", place % mix.resources)
    servers = (role == Role.SERVER)[:, None]
    batch["peer_addr"], batch["local_addr"] = np.where(servers, caller, server), np.where(servers, server, caller)
    port = 32_768 + place % 28_000
    batch["peer_port"] = np.where(role == Role.SERVER, port, 8080)
    batch["local_port"] = np.where(role == Role.SERVER, 8080, port)
    batch["conn_class"], batch["srtt_us"], batch["rtt_min_us"] = ExchangeClass.PINGPONG, 80 + place % 50, 70
    batch["flags"] = rng.choice([0, 0, 0, ExchangeFlags.BACKLOG, ExchangeFlags.FRESH], count)
    batch["outcome"] = np.where(place % 1000 < mix.failed * 1000, Outcome.RESET, Outcome.OK)
    return halves(batch)


def addresses(first: str, number: Any) -> Any:
    """IPv4 addresses from `first` on, as records hold them."""
    found = np.tile(np.frombuffer(packed(first), np.uint8), (len(number), 1))
    found[:, 14], found[:, 15] = number >> 8, number & 255
    return found


def ours(turns: Iterable[Turn], outbox: Outbox) -> None:
    """Let all sampled halves of the turns become spans."""
    room = WaitingRoom(identity_wait_s=0.0, join_wait_s=0.0, capacity=10**6)
    listener = Spans(outbox, room, PEERS, shared_key=False)
    for turn in turns:
        listener.take(turn)
    listener.close()


class Taker(FakeOutbox):
    """Takes bytes and lets them go."""

    def put(self, body: bytes, items: int, whose: Sequence[str] = ()) -> None: ...


PEERS = FakePeers(
    *(
        Identity(f"10.1.{i >> 8}.{i & 255}", "web", f"web-{i}", service=f"web-{i % 40}", measured=("shop/p/cart",))
        for i in range(5000)
    )
)


MIXES = (
    Mix(peers=1, resources=1),
    Mix(),
    Mix(peers=2000),
    Mix(peers=2000, resources=1, joined=0.0),
    Mix(failed=0.3),
    Mix(failed=1.0),
)


@click.command()
@click.option("--spans", default=10_000, show_default=True)
@click.option("--rounds", default=7, show_default=True)
def main(spans: int, rounds: int) -> None:
    """Print the cost for several mixes of spans."""
    for mix in MIXES:
        found = cost_of_spans(spans, rounds, mix)
        ours, sdk = found["ours"], found["sdk"]
        click.echo(
            f"{mix.peers:5d} peers {mix.resources:3d} resources {mix.joined:4.0%} joined {mix.failed:4.0%} failed: "
            f"{ours['ns_per_span']:7,.0f} ns, {ours['bytes_per_span']:5,.0f} B; SDK {sdk['ns_per_span']:8,.0f} ns, "
            f"{sdk['bytes_per_span']:5,.0f} B; bytes/s x {found['ratio'][0]:.0f} "
            f"[{found['ratio'][1]:.0f}, {found['ratio'][2]:.0f}]"
        )


if __name__ == "__main__":
    main()
