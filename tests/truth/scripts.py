"""Random scripts of one connection: what both ends do, and what each message is known to be.

Pauses are at most a quarter of the target's `pause`, or at least twice it.
A script says which of its requests got their answer and which their client saw fail; nothing else may become an event.
acts.py and endings.py write them, each from its seed; playing.py plays them.
"""

import os
from dataclasses import dataclass, field
from enum import Enum, auto

from latencyprobe_agent.vocabulary.records import Role

MS = 1_000_000
PAUSE_NS = int(os.environ.get("PAUSE_MS", "25")) * MS  # of the target; more where the machine is slow
IDLE_NS = 16 * PAUSE_NS  # of the plan


class Do(Enum):
    """What a step does. `end` does it."""

    SEND = auto()
    READ = auto()  # all that has come
    LOOK = auto()  # call for bytes, of which there are none
    WAIT = auto()
    SHUT = auto()  # shutdown(SHUT_WR)
    CLOSE = auto()
    ABORT = auto()  # close by a RST


@dataclass(frozen=True)
class Step:
    """One step. `read`: the other end reads at once what was sent."""

    do: Do
    end: Role = Role.UNKNOWN
    size: int = 0  # bytes
    ns: int = 0
    read: bool = True

    def __str__(self) -> str:
        words = [self.do.name.lower()]
        if self.end:
            words.insert(0, self.end.name.lower())
        if self.size:
            words.append(f"{self.size} B{'' if self.read else ', unread'}")
        if self.do is Do.WAIT:
            words.append(f"{self.ns / MS:.1f} ms")
        return " ".join(words)


class Fate(Enum):
    """What its client knows of a request."""

    ANSWERED = auto()
    FAILED = auto()


@dataclass
class Request:
    """A request and its response: bytes `a_from` to `a_to` of one stream, `b_from` to `b_to` of the other.

    `parts`: where it went on after silence: an end that takes the rest for the request is not wrong, and says so.
    `early`: the answer came before all of it.
    """

    a_from: int
    a_to: int = 0
    b_from: int = 0
    b_to: int = 0
    fate: Fate = Fate.ANSWERED
    parts: list[int] = field(default_factory=list)
    early: bool = False


@dataclass(frozen=True)
class Limit:
    """Client bytes `a_from` to `a_to` are no request, and no end can know it: docs/limits.md."""

    why: str
    a_from: int
    a_to: int


@dataclass
class Script:
    """One connection. `delayed_ack`: the first FIN is acknowledged with the second one, not at once."""

    seed: int
    delayed_ack: bool = False
    acts: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    limits: list[Limit] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"seed {self.seed}: {', '.join(self.acts)}"]
        lines += [
            f"  request A {r.a_from}-{r.a_to}, B {r.b_from}-{r.b_to}: {r.fate.name.lower()}"
            f"{' early' if r.early else ''}{f', goes on at {r.parts}' if r.parts else ''}"
            for r in self.requests
        ]
        lines += [f"  limit A {limit.a_from}-{limit.a_to}: {limit.why}" for limit in self.limits]
        return "\n".join(lines)
