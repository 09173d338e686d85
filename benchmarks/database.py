"""The load of a database: PostgreSQL and pgbench take turns on one processor.

A transaction is four RPCs. Its SELECT is long enough for about as many switches between tasks per second as in the load
by which LTTng's latency_tracker was judged (12,885); its clients wait for one row.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.builds import BUILD
from benchmarks.machine import SERVER_CPU
from benchmarks.processes import cgroup_ns, ended_children_ns, finished, on, own_cgroup
from tests.support.servers import pg, postgres

_CLIENTS = 4
_SCRIPT = """
\\set aid random(1, 90000)
BEGIN;
SELECT sum(abalance) FROM pgbench_accounts WHERE aid BETWEEN :aid AND :aid + 6000;
UPDATE pgbench_branches SET bbalance = bbalance + 1 WHERE bid = 1;
END;
"""


class Postgres:
    """`folder`: the cgroup of the server, `cgroup_id` its number."""

    def __init__(self, port: int, folder: Path) -> None:
        self.cgroup_id = folder.stat().st_ino
        self._port = port
        self._folder = folder
        self._script = BUILD / "transaction.sql"
        self._script.write_text(_SCRIPT)
        self._pgbench("-i", "-q", "-s", "1", "postgres")

    def transactions(self, count: int) -> tuple[float, float]:
        """CPU time of server and client, and time, of one transaction, in ns."""
        before_ns, began_ns = self._cpu_ns(), time.monotonic_ns()
        each = max(1, count // _CLIENTS)
        self._pgbench("-n", "-c", str(_CLIENTS), "-t", str(each), "-f", str(self._script), "postgres")
        took_ns = time.monotonic_ns() - began_ns
        return (self._cpu_ns() - before_ns) / (each * _CLIENTS), took_ns / (each * _CLIENTS)

    def _pgbench(self, *words: str) -> None:
        finished(*pg(self._port, "pgbench", *words), cpu=SERVER_CPU)

    def _cpu_ns(self) -> float:
        return cgroup_ns(self._folder) + ended_children_ns()


@contextmanager
def database(port: int) -> Iterator[Postgres]:
    """Start and stop a PostgreSQL that does not wait for its disk."""
    with own_cgroup() as folder:
        enter = ("sh", "-c", f'echo 0 >{folder}/cgroup.procs; exec "$@"', "sh")
        with postgres(port, under=on(SERVER_CPU, *enter)):
            yield Postgres(port, folder)
