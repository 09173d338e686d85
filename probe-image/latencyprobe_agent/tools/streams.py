"""`latencyprobe streams`: the calls of HTTP/2 that are open, the oldest first: what hangs, and who waits for whom."""

import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import click
import msgspec
import numpy as np
from numpy.typing import NDArray

from latencyprobe.ending import ending
from latencyprobe.options import DURATION, OUTPUT, Duration
from latencyprobe.plan import NodePlan, Role, SpanPolicy, Target
from latencyprobe.protocol import Protocol
from latencyprobe.report import units
from latencyprobe_agent import config as settings
from latencyprobe_agent.identity.process_name import process_name
from latencyprobe_agent.kernel.clock import Clock
from latencyprobe_agent.kernel.http2 import Http2Programs
from latencyprobe_agent.kernel.programs import Programs
from latencyprobe_agent.measure.rules import compile_rules
from latencyprobe_agent.tools.tail import timestamp
from latencyprobe_agent.vocabulary.addresses import endpoint
from latencyprobe_agent.vocabulary.records import Role as Side
from latencyprobe_agent.vocabulary.records import StreamFlags, StreamState

_ROW = "%8s %-9s %8s %-6s %10s %-22s %-22s %9s %9s %s"
_HEADER = _ROW % ("AGE", "STATE", "IDLE", "ROLE", "STREAM", "CLIENT", "SERVER", "ASKED", "ANSWERED", "PROCESS")
_ROOM = 4096  # bytes of the ring: of what has ended nothing is told here
_DRAIN_S = 0.1


@click.command(
    epilog="""\b
Examples:
  latencyprobe streams --port 50051
  latencyprobe streams --port 50051 --older-than 10s --duration 5s
  latencyprobe streams --port 50051 -o json
\b
STATE: asking (the request has not ended), waiting (for the answer's first byte), answering (it has not ended).
Calls that were open before this began are not seen; of older connections, those that come after the first whole frames.
Needs root, or CAP_BPF and CAP_PERFMON, and Linux 6.12 or newer. Reads the headers of frames, no header block, no data.
"""
)
@click.option(
    "--port",
    "ports",
    type=click.IntRange(1, 65535),
    multiple=True,
    required=True,
    metavar="PORT",
    help="A server's port, on this host or another; repeatable.",
)
@click.option("--older-than", type=Duration(), default="1s", show_default=True, help="Leave out younger ones.")
@click.option("--interval", type=Duration(), default="2s", show_default=True, help="From one look to the next.")
@DURATION
@OUTPUT
def streams(*, ports: tuple[int, ...], older_than: float, interval: float, duration: float | None, output: str) -> None:
    """Show the calls of HTTP/2 (gRPC) that are open, by age."""
    clear = output == "table" and sys.stdout.isatty()
    for found, clock in _looks(ports, interval, duration):
        now_ns = clock.now().boot_ns
        begun_ns = _begun_ns(found)
        shown = found[now_ns - begun_ns >= older_than * 1e9]
        shown = shown[np.argsort(_begun_ns(shown), kind="stable")]
        if output == "json":
            for one in shown:
                click.echo(msgspec.json.encode(_as_object(one, now_ns, clock)))
            continue
        if clear:
            click.clear()
        older = units.duration(round(older_than * 1e9))
        click.echo(f"{timestamp(clock.to_unix(now_ns))}: {len(found)} open, {len(shown)} for longer than {older}")
        if len(shown):
            click.echo(_HEADER)
        for one in shown:
            click.echo(_row(one, now_ns))


def _looks(ports: tuple[int, ...], interval_s: float, duration_s: float | None) -> Iterator[tuple[NDArray[Any], Clock]]:
    """Yield the open streams (STREAM[n]) of each look, until Ctrl-C or the end of the duration."""
    config, stop, clock = settings.from_environment(), threading.Event(), Clock()
    target = Target(
        *("host/streams/ports", "", "", "", "", Role.SERVER, (), 0),
        SpanPolicy(slower_than_ns=2**62, ratio=0.0, max_per_second=0),
        ports=ports,
        clients=True,
        protocol=Protocol.HTTP2,
    )
    plan = NodePlan(node="", generation=1, digest="", targets=(target,), objectives=(), host=True)
    with (
        ending(stop.set),
        Programs.open(config.bpf_object, ring_bytes=_ROOM) as programs,
        Http2Programs.beside(programs, config.bpf_dir) as http2,
    ):
        programs.apply(
            compile_rules(plan, {}), idle_timeout_ns=plan.idle_timeout_ns, own_tgid=0, owner_by_process=False,
            records_per_second=1, http2=True,
        )  # fmt: skip
        click.echo("attached; Ctrl-C ends", err=True)
        began_s = due_s = time.monotonic()
        over = False
        while not over:
            due_s += interval_s
            until_s = due_s if duration_s is None else min(due_s, began_s + duration_s)
            while time.monotonic() < until_s and not stop.wait(_DRAIN_S):
                programs.drain()
            over = stop.is_set() or (duration_s is not None and time.monotonic() >= began_s + duration_s)
            yield http2.open_streams(), clock
        lost = {reason: n for reason, n in http2.lost().items() if n and reason != "ring_full"}
    click.echo("lost: " + (", ".join(f"{n} ({reason})" for reason, n in lost.items()) or "none"), err=True)


def _begun_ns(found: NDArray[np.void]) -> NDArray[np.int64]:
    x = found["x"]
    first: NDArray[np.int64] = np.where(x["role"] == Side.SERVER, x["ready_first_ns"], x["send_start_ns"]).astype("i8")
    return first


def _state(one: np.void) -> str:
    if one["flags"] & StreamFlags.ANSWERED:
        return "answering"
    return "waiting" if one["state"] & StreamState.REQUEST_ENDED else "asking"


def _idle_ns(one: np.void, now_ns: int) -> int:
    """Since the answer's last frame; of what is not answered, since the request's last byte or its beginning."""
    x = one["x"]
    last_ns = max(int(one["answer_ns"]), int(x["send_end_ns"]), int(x["read_last_ns"]), int(x["send_start_ns"]))
    return max(now_ns - last_ns, 0)


def _ends(one: np.void) -> tuple[str, str]:
    """The client's address and port, and the server's."""
    x = one["x"]
    local = endpoint(bytes(x["local_addr"]), int(x["local_port"]))
    peer = endpoint(bytes(x["peer_addr"]), int(x["peer_port"]))
    return (peer, local) if x["role"] == Side.SERVER else (local, peer)


def _process(one: np.void) -> tuple[int, str]:
    """The process that read the request, or sent it, and its name if it is still there."""
    x = one["x"]
    tgid = int(x["reader_tgid"] if x["role"] == Side.SERVER else x["writer_tgid"])
    return tgid, process_name(tgid)


def _row(one: np.void, now_ns: int) -> str:
    x, (tgid, name) = one["x"], _process(one)
    age_ns, role = now_ns - int(_begun_ns(one.reshape(1))[0]), Side(int(x["role"])).name.lower()
    times = units.duration(age_ns), _state(one), units.duration(_idle_ns(one, now_ns))
    sizes = int(x["request_bytes"]), int(x["response_bytes"])
    return _ROW % (*times, role, int(x["stream_id"]), *_ends(one), *sizes, f"{name or '-'} {tgid}")


def _as_object(one: np.void, now_ns: int, clock: Clock) -> dict[str, Any]:
    x, (client, server), (tgid, name) = one["x"], _ends(one), _process(one)
    begun_ns = int(_begun_ns(one.reshape(1))[0])
    return {
        "time": timestamp(clock.to_unix(now_ns)),
        "begun": timestamp(clock.to_unix(begun_ns)),
        "age_ns": now_ns - begun_ns,
        "idle_ns": _idle_ns(one, now_ns),
        "state": _state(one),
        "role": Side(int(x["role"])).name.lower(),
        "stream_id": int(x["stream_id"]),
        "client": client,
        "server": server,
        "request_bytes": int(x["request_bytes"]),
        "response_bytes": int(x["response_bytes"]),
        "tgid": tgid,
        "comm": name or None,
    }
