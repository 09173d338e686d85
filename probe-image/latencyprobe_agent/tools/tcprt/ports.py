"""Which connections TCP-RT follows, and on which side: ports and ranges of the tool's options.

What it receives is text; what it returns are entries of the kernel's map, and which ports were named exactly. Rules:
docs/design/evidence.md, "TCP-RT connections".
"""

from dataclasses import dataclass

from latencyprobe_agent.tools.tcprt.operations import Side

Range = tuple[int, int]
_WORDS = 1024  # 65,536 ports


@dataclass(frozen=True)
class Ports:
    """Exact ports and ranges (both ends included) of the local end, of the peer's end."""

    local: tuple[int, ...] = ()
    local_ranges: tuple[Range, ...] = ()
    peer: tuple[int, ...] = ()
    peer_ranges: tuple[Range, ...] = ()

    def side(self, local_port: int, peer_port: int) -> Side | None:
        """Return the side of a connection, None if it is not followed. The first match wins, local before peer."""
        if local_port in self.local or _within(local_port, self.local_ranges):
            return "local"
        if peer_port in self.peer or _within(peer_port, self.peer_ranges):
            return "peer"
        return None

    def words(self) -> dict[int, int]:
        """Return the kernel's bit map, word → 64 ports: the local end's, from word 1024 the peer's; {} for no choice.

        The bit of port 0, which no connection has, marks that there is a choice (bpf/tcprt_follow.bpf.h).
        """
        words: dict[int, int] = {}
        for first_word, exact, ranges in (
            (0, self.local, self.local_ranges),
            (_WORDS, self.peer, self.peer_ranges),
        ):
            for first, last in (*((port, port) for port in exact), *ranges):
                for port in range(first, last + 1):
                    word = first_word + port // 64
                    words[word] = words.get(word, 0) | 1 << port % 64
        return {**words, 0: words.get(0, 0) | 1} if words else {}


def parse_ports(text: str) -> tuple[tuple[int, ...], tuple[Range, ...]]:
    """Parse `3306,8000-8999` into exact ports and ranges. Raises ValueError naming the part that is wrong."""
    exact: list[int] = []
    ranges: list[Range] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        first, dash, last = part.partition("-")
        if dash:
            ranges.append((_port(first, part), _port(last, part)))
            if ranges[-1][0] > ranges[-1][1]:
                raise ValueError(f"{part!r}: the first port of a range is above its last")
        else:
            exact.append(_port(part, part))
    return tuple(dict.fromkeys(exact)), tuple(ranges)


def _port(text: str, part: str) -> int:
    if not (text.isascii() and text.isdigit()) or not 0 < int(text) <= 65_535:
        raise ValueError(f"{part!r} is no port or range such as 3306 or 8000-8999")
    return int(text)


def _within(port: int, ranges: tuple[Range, ...]) -> bool:
    return any(first <= port <= last for first, last in ranges)
