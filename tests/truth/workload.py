"""Build and run the workload generator (truth.c) for tests and benchmarks; needs a C compiler."""

import json
import os
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.waiting import wait_until
from tests.truth.join import Truth

NO_PAUSE_NS = 600_000_000_000  # for workloads that never pause: no stalled machine looks as if they did

SO_TIMESTAMPING = 37  # asm-generic/socket.h
SOF_TIMESTAMPING_RX_SOFTWARE, SOF_TIMESTAMPING_SOFTWARE = 1 << 3, 1 << 4  # linux/net_tstamp.h

HERE = Path(__file__).parent
BINARIES = HERE.parents[1] / "build" / "truth"


def build(name: str = "truth") -> Path:
    """Compile NAME.c if a source is newer than its binary."""
    binary = BINARIES / name
    sources = [HERE / f"{name}.c", *HERE.glob("*.h")]
    if not binary.exists() or binary.stat().st_mtime < max(source.stat().st_mtime for source in sources):
        binary.parent.mkdir(parents=True, exist_ok=True)
        fresh = binary.with_suffix(f".{os.getpid()}")
        subprocess.run(["cc", "-O2", "-Wall", "-Werror", "-pthread", "-o", fresh, sources[0]], check=True)
        fresh.replace(binary)
    return binary


@contextmanager
def receive_stamps() -> Iterator[None]:
    """Keep the kernel's software receive stamps on: it switches them in a worker, some time after the first socket
    asks. They are one switch for all namespaces."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.bind(("127.0.0.1", 0))
        asking.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, SOF_TIMESTAMPING_RX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE)

        def stamped() -> bool:
            asking.sendto(b"x", asking.getsockname())
            return bool(asking.recvmsg(1, 256)[1])

        wait_until(stamped, "the kernel stamps what it receives")
        yield


def command(mode: str, options: Mapping[str, object], prefix: Sequence[str] = ()) -> list[str]:
    """Command line of a mode; an option `max_size=5` becomes `--max-size 5`, `True` a bare flag."""
    words: list[str] = []
    for name, value in options.items():
        words += [f"--{name.replace('_', '-')}"] + ([] if value is True else [str(value)])
    return [*prefix, str(build()), mode, *words]


def run_both(log: Path, **options: object) -> Truth:
    """Run client and server on loopback to the end and return their logs, aligned."""
    with receive_stamps():
        done = subprocess.run(command("both", {"log": log, **options}), check=True, capture_output=True, text=True)
    totals = [json.loads(line) for line in done.stdout.splitlines()]
    truth = Truth.load(log.with_name(f"{log.name}.client.npy"), log.with_name(f"{log.name}.server.npy"))
    assert [len(truth)] * 2 == [total["answered"] for total in totals]
    return truth


def run_apart(
    log: Path, server: Sequence[str], client: Sequence[str], address: str, dial: str = "", **options: object
) -> Truth:
    """Run server and client behind the command prefixes `server` and `client` (namespaces), as `run_both` does.

    The client calls `dial` where that is not the server's own address.
    """
    paths = [log.with_name(f"{log.name}.{side}.npy") for side in ("client", "server")]
    port = address.rpartition(":")[2]
    listen = {"log": paths[1], "address": address, **options}
    call = {"log": paths[0], "address": dial or address, **options}
    serving = subprocess.Popen(command("server", listen, server), stdout=subprocess.DEVNULL)
    try:
        listening = [*server, "ss", "-Hltn", f"sport = :{port}"]
        wait_until(lambda: subprocess.run(listening, check=True, capture_output=True).stdout, "the server listens")
        with receive_stamps():
            subprocess.run(command("client", call, client), check=True, capture_output=True)
    finally:
        serving.terminate()
        assert serving.wait() == 0, "the generator's server failed"
    return Truth.load(*paths)
