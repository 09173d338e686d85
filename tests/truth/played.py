"""The log of a script that was played (playing.py)."""

from dataclasses import dataclass, field

from latencyprobe_agent.vocabulary.records import Role
from tests.truth.scripts import MS, Do, Script
from tests.truth.turn_events import Event

OTHER = {Role.CLIENT: Role.SERVER, Role.SERVER: Role.CLIENT}


@dataclass(frozen=True)
class Moved:
    """Bytes up to offset `upto` were sent or read by `end` between `ns` and `until_ns`; `arrived_ns`: at the latest."""

    do: Do
    end: Role
    upto: int
    ns: int
    until_ns: int
    arrived_ns: int = 0


@dataclass
class Played:
    """What became of a script. `events`: in their order. `doubtful`: why the log does not show what each end saw.

    `stalled`: a step took so long that the script is not what it was to be; the log still is.
    """

    script: Script
    port: int  # the client's
    address: str  # the server's
    cookies: dict[Role, int]
    begin_ns: int
    events: list[tuple[Role, Event]] = field(default_factory=list)
    moved: list[Moved] = field(default_factory=list)
    rtt_ns: int = 0  # the longest that either end smoothed
    doubtful: str = ""
    stalled: bool = False

    def of(self, role: Role) -> list[Event]:
        """The events of one end."""
        return [event for end, event in self.events if end is role]

    def timeline(self) -> str:
        """The log, a line each."""
        lines = []
        for end, e in self.events:
            marks = " ".join(name for name in ("unread", "unacked") if getattr(e, name))
            times = f"{(e.ns - self.begin_ns) / MS:9.3f} .. {(e.last_ns - self.begin_ns) / MS:9.3f} ms"
            lines.append(f"  {times}  {end.name.lower():6} {e.kind.name:6} {e.size or '':>6} {marks}".rstrip())
        return "\n".join(lines)
