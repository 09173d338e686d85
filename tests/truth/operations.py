"""Write TCP-RT operations down for tests: a connection whose sequence numbers move as the script says."""

import json
from typing import Any

T_NS = 1_594_281_600_000_456_000
MS = 1_000_000


class Script:
    """Operations of one connection, from `init`. Each method moves the numbers, then records its operation.

    `ms`: time since T_NS. `lines`: the JSON lines so far.
    """

    def __init__(self, side: str = "local", ms: float = 0, conn: int | str = 1, **fields: Any) -> None:
        self.now: dict[str, Any] = {
            "conn": conn,
            "snd_nxt": 1001,
            "snd_una": 1001,
            "rcv_nxt": 5001,
            "total_retrans": 0,
            "min_rtt_us": 180,
            "mss": 1448,
            "ofo": False,
        }
        self.lines: list[str] = []
        ends = {"side": side, "local": "10.0.0.1:3306", "peer": "10.0.0.2:43210"}
        self._add("init", ms, ends | {k: fields.pop(k) for k in ("side", "local", "peer") if k in fields} | fields)

    def recv_data(self, ms: float, size: int, **fields: Any) -> "Script":
        """Payload of `size` bytes arrives in order."""
        return self._add("recv_data", ms, {"rcv_nxt": self.now["rcv_nxt"] + size, "ofo": False} | fields)

    def send_data(self, ms: float, size: int, **fields: Any) -> "Script":
        """`size` new bytes are sent."""
        return self._add("send_data", ms, {"snd_nxt": self.now["snd_nxt"] + size} | fields)

    def acked(self, ms: float, size: int | None = None, **fields: Any) -> "Script":
        """The peer acknowledges `size` more bytes; None: everything."""
        una = self.now["snd_nxt"] if size is None else self.now["snd_una"] + size
        return self._add("pkts_acked", ms, {"snd_una": una} | fields)

    def release(self, ms: float, **fields: Any) -> "Script":
        """The socket goes."""
        return self._add("release", ms, fields)

    def fins(self) -> "Script":
        """Both ends send their FIN and acknowledge the other's: no operation of its own."""
        self.now["snd_nxt"] += 1
        self.now["rcv_nxt"] += 1
        self.now["snd_una"] = self.now["snd_nxt"]
        return self

    def _add(self, op: str, ms: float, fields: dict[str, Any]) -> "Script":
        self.now |= fields
        for name in ("snd_nxt", "snd_una", "rcv_nxt"):
            self.now[name] &= 0xFFFFFFFF
        ends = ("side", "local", "peer") if op == "init" else ()
        shown = {k: v for k, v in self.now.items() if k not in ("side", "local", "peer") or k in ends}
        self.lines.append(json.dumps({"op": op, "unix_ns": T_NS + round(ms * MS), **shown}))
        return self


def example() -> Script:
    """The connection of docs/design/evidence.md, "TCP-RT lines"."""
    script = Script(ms=-0.456).recv_data(0, 1448).recv_data(1, 152).send_data(6, 2896)
    script.acked(7, 1448).acked(9, 1448).recv_data(20, 100).send_data(22, 500, total_retrans=1).acked(24)
    return script.fins().release(30)


EXAMPLE_LINES = (
    "V6 R 1594281600 456 10.0.0.2:43210 10.0.0.1:3306 2896 9000 180 0 1 5000 1000 1600 0 1448 \n"
    "V6 R 1594281600 20456 10.0.0.2:43210 10.0.0.1:3306 500 4000 180 1 2 2000 0 100 0 1448 \n"
)
EXAMPLE_STATISTICS = "1594281660 all 3306 6500 3500 250 180 0 1698 500 850 2\n"
