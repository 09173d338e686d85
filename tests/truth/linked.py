"""Two network namespaces at both ends of a link that delays and loses packets (link.c): "client" 10.96.0.1, "server"
10.96.0.2."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from tests.truth import workload
from tests.truth.netns import INTERFACE, Namespace


@contextmanager
def linked(delay_ms: int, lost_per_mille: int) -> Iterator[tuple[Namespace, Namespace]]:
    """Yield the namespaces of client and server, `delay_ms` apart each way."""
    made: list[Namespace] = []
    try:
        made += [Namespace(f"lp-{os.getpid()}-far-{side}") for side in ("client", "server")]
        ends = [namespace.name for namespace in made]
        words = [workload.build("link"), *ends, INTERFACE, str(delay_ms * 1000), str(lost_per_mille), "1"]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as link:
            assert link.stdin
            assert link.stdout
            assert link.stdout.readline() == b"ready\n"
            for host, namespace in enumerate(made, start=1):
                namespace.run("ip", "addr", "add", f"10.96.0.{host}/24", "dev", INTERFACE)
                namespace.run("ip", "link", "set", INTERFACE, "up")
            yield made[0], made[1]
            link.stdin.close()
    finally:
        for namespace in made:
            namespace.delete()
