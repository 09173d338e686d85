"""Other tools that show how long requests take, as processes beside the load: Debian's packages, with their usual use.

What a peer prints goes nowhere, as if a person looked at it. One that cannot run here says so itself.
"""

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from benchmarks.builds import BUILD
from benchmarks.machine import LOAD_CPU
from benchmarks.processes import DoesNotRun, started

_HERE = Path(__file__).parent
_SETTLE_S = 1.5
# Some machines leave tracefs to whoever needs it: mounted for this process alone.
_WITH_TRACEFS = (
    *("unshare", "--mount", "sh", "-c"),
    'mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing; exec "$@" >/dev/null',
    "peer",
)


@dataclass(frozen=True)
class Peer:
    """One tool. `words`: its command line for a port; `shows`: what a user gets, and of which ends."""

    name: str
    shows: str
    words: Callable[[int], tuple[object, ...]]

    @contextmanager
    def attached(self, port: int) -> Iterator[int]:
        """Run it; yields its id. Raises DoesNotRun if it ends by itself, with its own last words."""
        log = BUILD / f"{self.name.partition(' ')[0]}.log"
        words = (*_WITH_TRACEFS, *self.words(port))
        with started(*words, cpu=LOAD_CPU, log=log, ready=_settled(), ended_by=signal.SIGINT) as pid:
            yield pid

    def reason_against(self, port: int) -> str:
        """Why it does not run here; "" if it does."""
        try:
            with self.attached(port):
                return ""
        except DoesNotRun as refused:
            return str(refused)


def peers() -> tuple[Peer, ...]:
    """All of them."""
    return (
        Peer("tcppktlat (libbpf-tools 0.31)", "each wait for a reader, both ends", lambda _: _tcppktlat()),
        Peer("tcprtt (libbpf-tools)", "round trips of the network", lambda port: ("tcprtt", "-p", port, "-i", 1)),
        Peer("bpftrace by descriptor", "histograms, both ends apart", lambda _: ("bpftrace", _HERE / "rpc.bt")),
        Peer("tcpdump of headers", "packets, both ends", _tcpdump),
    )


@cache
def _tcppktlat() -> tuple[str, ...]:
    fetched = subprocess.run([_HERE / "fetch_tcppktlat"], check=False, capture_output=True, text=True)
    if fetched.returncode:
        raise DoesNotRun(fetched.stderr.strip().rpartition("\n")[2])
    return tuple(fetched.stdout.split())


def _tcpdump(port: int) -> tuple[object, ...]:
    return ("tcpdump", "-i", "lo", "-Z", "root", "-s", 96, "-w", "/dev/null", "tcp", "port", port)


def _settled() -> Callable[[int], bool]:
    """Few of them say when they are attached: all have a moment for it, in which those that cannot have ended."""
    until = time.monotonic() + _SETTLE_S
    return lambda _: time.monotonic() > until
