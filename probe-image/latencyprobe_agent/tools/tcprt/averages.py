"""The statistics line of TCP-RT: averages per port since the last one, docs/design/evidence.md, "TCP-RT averages".

Receives records and the time, live or of a replay; returns the lines of each interval that has ended.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from latencyprobe_agent.tools.tcprt.machine import Record
from latencyprobe_agent.tools.tcprt.operations import NO_RTT
from latencyprobe_agent.tools.tcprt.ports import Ports

FIRST_NS = 10_000_000_000  # after the start, as the original


@dataclass
class _Sums:
    total_us: int = 0
    server_us: int = 0
    recv_us: int = 0
    sent_bytes: int = 0
    recv_bytes: int = 0
    retransmits: int = 0
    packets: int = 0
    rtt_us: int = 0
    rtts: int = 0
    failed: int = 0
    count: int = 0

    def add(self, record: Record) -> None:
        self.total_us += (record.v6_end_ns - record.start_ns) // 1000
        self.server_us += record.server_us
        self.recv_us += record.recv_us
        self.sent_bytes += record.v6_sent_bytes
        self.recv_bytes += record.v6_received_bytes
        self.retransmits += record.retransmits
        self.packets += record.v6_sent_bytes // max(record.mss, 1) + 1
        if record.min_rtt_us != NO_RTT:  # without a sample there is nothing to average
            self.rtt_us += record.min_rtt_us
            self.rtts += 1
        self.count += 1

    def values(self) -> tuple[int, ...]:
        n = max(self.count, 1)
        return (
            self.total_us // n,
            self.server_us // n,
            1000 * self.retransmits // max(self.packets, 1),
            self.rtt_us // max(self.rtts, 1),
            1000 * self.failed // n if self.count else 0,
            self.sent_bytes // n,
            self.recv_us // n,
            self.recv_bytes // n,
            self.count,
        )


class Averages:
    """Sums per port; exact ports always print, ports of a range when they counted something."""

    def __init__(self, ports: Ports, start_ns: int, interval_ns: int) -> None:
        self._ports = ports
        self._interval_ns = interval_ns
        self._due_ns = start_ns + FIRST_NS
        self._sums: dict[str, _Sums] = {}

    def add(self, record: Record) -> None:
        """Count an R or P, and a W as a failure. An R without a sent byte is not counted."""
        connection = record.connection
        served = connection.side == "local"
        if record.kind not in ("R", "P", "W") or (record.kind == "R" and not record.v6_sent_bytes):
            return
        port = str(connection.local.port) if served else f"P{connection.peer.port}"
        sums = self._sums.setdefault(port, _Sums())
        if record.kind == "W":
            sums.failed += 1
        else:
            sums.add(record)

    def due(self, now_ns: int) -> Iterator[str]:
        """Yield the lines of every interval that has ended by `now_ns` (Unix time), and start the next."""
        while now_ns >= self._due_ns:
            yield from self.lines(self._due_ns // 1_000_000_000)
            self._due_ns += self._interval_ns

    def rest(self) -> Iterator[str]:
        """Yield the lines of the interval that has not ended, as if it had."""
        return self.due(self._due_ns)

    def lines(self, unix_s: int) -> Iterator[str]:
        """Yield a line per port, each with its newline, and start again from zero."""
        taken, self._sums = self._sums, {}
        exact = [*map(str, self._ports.local), *(f"P{port}" for port in self._ports.peer)]
        for port in exact:
            yield _line(unix_s, port, taken.pop(port, _Sums()))
        for port, sums in sorted(taken.items()):
            if sums.count:
                yield _line(unix_s, port, sums)


def _line(unix_s: int, port: str, sums: _Sums) -> str:
    return f"{unix_s} all {port} {' '.join(map(str, sums.values()))}\n"
