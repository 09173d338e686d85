"""Scripts of one end in words, for tests of the model of the rules (turns.py)."""

import pytest

from latencyprobe_agent.vocabulary.records import Role
from tests.truth.turn_events import Event, Kind, Turn
from tests.truth.turns import OneEnd

MS = 1_000_000
PAUSE_MS = 200
ALERT = 24  # bytes
LATE = {Role.SERVER: "a<", Role.CLIENT: "a!"}  # bytes of a request whose response has begun
PUSHED = "a b 1 a b 2500 flush"  # then server bytes are a push

both_ends = pytest.mark.parametrize("role", [Role.CLIENT, Role.SERVER])
KINDS = {kind.name.lower(): kind for kind in Kind}


def play(role: Role, script: str, **options: int) -> list[Turn]:
    """Ended turns of a script: words `a`, `b`, `fin`, ... and numbers: milliseconds that pass.

    `a`, `b`: one byte, in TLS as many as an alert has; `aa`: twice as many.

    `a!`, `b!`: over unread bytes; `a<`, `b<`: early; `a~`: before all is acknowledged; `a?`: after something was sent
    again. What comes is read at once, but for `a.`, `b.`.
    """
    end = OneEnd(role, PAUSE_MS * MS, **options)
    marks = {"!": "unread", "<": "early", "~": "unacked", "?": "disturbed"}
    ns = 10 * MS
    for word in script.split():
        if word.isdigit():
            ns += int(word) * MS
        else:
            kind, flags = word.rstrip("!<~?."), word[len(word.rstrip("!<~?.")) :]
            size = 0
            if kind.strip("ab") == "":
                kind, size = kind[0], len(kind) * (ALERT if options.get("tls") else 1)
            end.see(Event(KINDS[kind], ns, size=size, **{marks[flag]: True for flag in flags if flag in marks}))
            if kind == ("a" if role is Role.SERVER else "b") and "." not in flags:
                end.see(Event(Kind.READ, ns))
    return end.turns


def names(turns: list[Turn]) -> list[str]:
    """What each is: why it is no event, else its outcome."""
    return [(t.excluded.name if t.excluded else t.outcome.name).lower() for t in turns]


def spans(turns: list[Turn]) -> list[tuple[int, int, int, int]]:
    """First byte and number of bytes of request and response."""
    return [(t.request_offset, t.request_bytes, t.response_offset, t.response_bytes) for t in turns]
