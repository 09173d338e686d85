"""A signal's records as they come, until Ctrl-C or the end of the duration; then what was lost. For every live tool."""

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Protocol

import click
import numpy as np
from numpy.typing import NDArray

from latencyprobe.ending import ending
from latencyprobe_agent import config as settings
from latencyprobe_agent.kernel.attached import Attached
from latencyprobe_agent.kernel.clock import Clock
from latencyprobe_agent.kernel.evidence import EvidencePrograms
from latencyprobe_agent.signals.table import Signal
from latencyprobe_agent.tools.options import Options
from latencyprobe_agent.vocabulary.addresses import address
from latencyprobe_agent.vocabulary.comm import comm

_BATCH = 1024  # records, which take some 0.1 s to print: SIGINT is not kept waiting
_DRAIN_S = 0.1
_REST_S = 2.0  # to show what is left at the end; where records come faster than they are printed, that is a full ring


class Lasting(Protocol):
    """Options that say for how long: seconds, None until Ctrl-C."""

    @property
    def duration_s(self) -> float | None:
        """See above."""


def batches(
    signal: Signal,
    options: Options,
    *,
    attached: Callable[[EvidencePrograms], None] = lambda _: None,
    ended: Callable[[EvidencePrograms], None] = lambda _: None,
    ring_bytes: int | None = None,
    entries: Mapping[str, Mapping[bytes, bytes]] | None = None,
) -> Iterator[tuple[NDArray[np.void], Clock]]:
    """Attach to the sockets that `options` name, and yield as `follow()` does. Raises Unsupported.

    `entries`: as in `EvidencePrograms.alone()`.
    """
    folder = settings.from_environment().bpf_dir
    programs = EvidencePrograms.alone(folder, signal, options.socket_filter, ring_bytes=ring_bytes, entries=entries)
    return follow(programs, options, attached=lambda: attached(programs), ended=lambda: ended(programs))


def follow(
    opened: AbstractContextManager[Attached],
    options: Lasting,
    *,
    attached: Callable[[], None] = lambda: None,
    ended: Callable[[], None] = lambda: None,
    tick_s: float = 1.0,
) -> Iterator[tuple[NDArray[np.void], Clock]]:
    """Yield batches of records, and the clock that turns their stamps into Unix time; at the end leave `opened`.

    It is entered when SIGINT and SIGTERM already end the loop: what it attaches is detached again. Every `tick_s` the
    signal's iterator runs, and an empty batch comes when nothing has happened. `attached` is called before the first
    record is read, `ended` before it is detached. Prints on stderr that it is attached, and at the end the losses.
    """
    stop = threading.Event()
    clock = Clock()
    with ending(stop.set), opened as programs:
        attached()
        click.echo("attached; Ctrl-C ends", err=True)
        now = time.monotonic()
        until = math.inf if options.duration_s is None else now + options.duration_s
        tick = now
        while now < until and not stop.is_set():
            programs.wait(max(0.0, min(_DRAIN_S, tick_s, until - now)))
            batch = programs.drain(_BATCH)
            due = (now := time.monotonic()) >= tick
            if due:
                tick = now + tick_s
                programs.flush()
                clock.resample()
            if len(batch) or due:
                yield batch, clock
        rest_until, rest = time.monotonic() + _REST_S, programs.waiting()  # what comes from now on is after the end
        while rest and time.monotonic() < rest_until and len(batch := programs.drain(min(_BATCH, rest))):
            rest -= len(batch)
            yield batch, clock
        not_shown = min(rest, programs.waiting())  # others were overwritten, which the ring has counted
        ended()
        lost = {reason: n for reason, n in {**programs.lost(), "not_shown": not_shown}.items() if n}
    click.echo("lost: " + (", ".join(f"{n} ({reason})" for reason, n in lost.items()) or "none"), err=True)


def as_object(record: np.void, unix_ns: int, more: Mapping[str, object]) -> dict[str, object]:
    """Return a record as JSON has it: the fields' own names, the header's first, `time` in ISO 8601 UTC."""
    flow = record["flow"]
    return {
        "time": timestamp(unix_ns),
        "sock_cookie": int(flow["sock_cookie"]),
        "cgroup_id": int(flow["cgroup_id"]),
        "netns_ino": int(flow["netns_ino"]),
        "family": int(flow["family"]),
        "local_addr": address(bytes(flow["local_addr"])),
        "local_port": int(flow["local_port"]),
        "peer_addr": address(bytes(flow["peer_addr"])),
        "peer_port": int(flow["peer_port"]),
        "owner_tgid": int(flow["owner_tgid"]),
        "owner_tid": int(flow["owner_tid"]),
        "owner_comm": comm(flow["owner_comm"]),
        **more,
    }


def timestamp(unix_ns: int) -> str:
    """Return ISO 8601 in UTC, to the microsecond."""
    seconds, ns = divmod(unix_ns, 10**9)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{ns // 1000:06d}Z"
