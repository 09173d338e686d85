"""Recorded operations of TCP-RT, one JSON object a line, as `latencyprobe tcprt --replay` reads them.

`operations()` is the only parser of the format. What an operation means: docs/design/evidence.md, "TCP-RT operations".
The text of an endpoint is read and written here too, because V6 lines and records spell it alike.
"""

import ipaddress
from collections.abc import Iterable, Iterator
from typing import Annotated, Literal, NamedTuple

import msgspec

from latencyprobe.errors import LatencyProbeError
from latencyprobe.wire import UNREADABLE

U32 = 0xFFFFFFFF
NO_RTT = U32  # rtt_min without a sample, in the kernel and in a V6 line

Side = Literal["local", "peer"]
_Sequence = Annotated[int, msgspec.Meta(ge=0, le=U32)]


class Endpoint(NamedTuple):
    """One end of a connection; an IPv4-mapped address is an `IPv4Address`."""

    address: ipaddress.IPv4Address | ipaddress.IPv6Address
    port: int

    def __str__(self) -> str:
        return f"{self.address}:{self.port}" if self.address.version == 4 else f"[{self.address}]:{self.port}"


class Operation(msgspec.Struct, frozen=True):
    """What happened to a connection at `unix_ns`, and its sequence numbers after that. Other fields are ignored.

    `min_rtt_us`: 4294967295 or null without a sample. `ofo`: the out-of-order queue held something.
    """

    conn: int | str
    op: Literal["init", "recv_data", "send_data", "pkts_acked", "release"]
    unix_ns: Annotated[int, msgspec.Meta(ge=0)]
    snd_nxt: _Sequence
    snd_una: _Sequence
    rcv_nxt: _Sequence
    total_retrans: _Sequence
    min_rtt_us: _Sequence | None
    mss: _Sequence
    ofo: bool | Annotated[int, msgspec.Meta(ge=0, le=1)]


class Opening(Operation, frozen=True):
    """The operation `init`: the connection was established."""

    side: Side
    local: str
    peer: str


class _Kind(msgspec.Struct, frozen=True):
    op: str = ""


_ANY = msgspec.json.Decoder(_Kind)
_OPENING = msgspec.json.Decoder(Opening)
_LATER = msgspec.json.Decoder(Operation)


def operations(lines: Iterable[str | bytes], source: str) -> Iterator[tuple[int, Operation]]:
    """Yield (line number, operation); empty lines are skipped. Raises LatencyProbeError naming source, line, field."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield number, (_OPENING if _ANY.decode(line).op == "init" else _LATER).decode(line)
        except UNREADABLE as error:
            raise LatencyProbeError(f"{source}: line {number}: {_explain(error)}") from error


def endpoint(text: str) -> Endpoint:
    """Parse `10.0.0.1:3306` or `[2001:db8::1]:3306`. Raises ValueError."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise ValueError(f"{text!r} is no address:port such as 10.0.0.1:3306 or [2001:db8::1]:3306")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    ip = ipaddress.ip_address(host)
    return Endpoint((ip.version == 6 and ip.ipv4_mapped) or ip, int(port))


def _explain(error: Exception) -> str:
    what, _, path = str(error).partition(" - at `$.")
    field = path.rstrip("`")
    if what.startswith("Object missing required field"):
        field = what.split("`")[1]
        needs = ", ".join(name for name in Opening.__struct_fields__ if name not in ("side", "local", "peer"))
        return f"{field}: missing: an operation has {needs}; init also side, local, peer"
    if field == "op":
        return f"op: {what}: one of init, recv_data, send_data, pkts_acked, release"
    return f"{field}: {what}" if field else what
