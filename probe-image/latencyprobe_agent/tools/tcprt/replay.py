"""Replay of recorded operations: through the state machine, out come the records that the kernel would have made."""

from collections.abc import Iterable, Iterator

from latencyprobe.errors import LatencyProbeError
from latencyprobe_agent.tools.tcprt.machine import Connection, Local, Peer, Record, open_machine
from latencyprobe_agent.tools.tcprt.operations import Opening, Operation, endpoint, operations


def replay(lines: Iterable[str | bytes], source: str = "operations") -> Iterator[Record]:
    """Yield the records of interleaved connections, in the order of the operations that end them.

    Raises LatencyProbeError, naming `source` and the line, for what `operations()` refuses, an operation of a
    connection that is not open, a second `init`, and time that goes back on a connection.
    """
    machines: dict[int | str, Local | Peer] = {}
    latest_ns: dict[int | str, int] = {}
    for number, op in operations(lines, source):
        machine = machines.get(op.conn)
        if problem := _problem(op, machine is not None, latest_ns.get(op.conn, 0)):
            raise LatencyProbeError(f"{source}: line {number}: {problem}")
        if machine:
            yield from machine.apply(op)
        elif isinstance(op, Opening):
            try:
                connection = Connection(op.side, endpoint(op.local), endpoint(op.peer))
            except ValueError as error:
                raise LatencyProbeError(f"{source}: line {number}: local, peer: {error}") from error
            machines[op.conn] = open_machine(connection, op)
        latest_ns[op.conn] = op.unix_ns
        if op.op == "release":
            del machines[op.conn], latest_ns[op.conn]


def _problem(op: Operation, is_open: bool, latest_ns: int) -> str:
    """Return why an operation cannot come now, empty if it can."""
    if isinstance(op, Opening):
        return f"conn: {op.conn!r} is open already: release it before the next init" if is_open else ""
    if not is_open:
        return f"conn: {op.conn!r} is not open: its first operation must be init"
    if op.unix_ns < latest_ns:
        return f"unix_ns: {op.unix_ns} is before the connection's last operation at {latest_ns}"
    return ""
