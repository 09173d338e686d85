"""Bytes that an application had written and its host's kernel had not sent: why, and what helps. In words.

The agent words what it knows of one exchange with `what()`, which travels as `what` of an `sli.EvidenceSummary` of the
signal `unsent`; the report makes a sentence of it. Where the reasons come from: bpf/exchange_unsent.bpf.h.
"""

from typing import NamedTuple

SIGNAL = "unsent"


class Reason(NamedTuple):
    """Why bytes waited. `code`: as in bpf/events.h; `held_by`, `remedy`: for a person, `{peer}` being the other end."""

    name: str
    code: int
    held_by: str
    remedy: str


REASONS = (
    Reason("nagle", 1, "Nagle, until the {peer}'s ACK", "set TCP_NODELAY or write once"),
    Reason("cork", 2, "TCP_CORK or MSG_MORE, until let go", "uncork after the last write, or write once"),
    Reason(
        "window", 3, "the {peer}'s receive window was full", "let the {peer} read sooner, or give it a larger buffer"
    ),
    Reason("cwnd", 4, "the congestion window, until ACKs came", "keep connections open, or send less at once"),
    Reason(
        "pacing",
        5,
        "pacing, or a full queue below TCP",
        "look at SO_MAX_PACING_RATE, the congestion control and the interface",
    ),
)
BY_NAME = {reason.name: reason for reason in REASONS}
OTHER = "other"  # a reason of another version
BOUNDS = ("", "at most", "at least")  # by code: exact, and the two bounds

_PEERS = {"client": "server", "server": "client"}


def what(holder: str, reason: str, bound: int) -> str:
    """Return the words for a summary. `holder`: `client` or `server`, whose kernel held them; `bound`: of BOUNDS."""
    return " ".join(word for word in (holder, reason, BOUNDS[bound]) if word)


def sentence(what: str, wait: str = "") -> str:
    """Return what `what()` says as a sentence, of another version as it is. `wait`: how long, in words; without, of
    several that waited."""
    holder, _, rest = what.partition(" ")
    name, _, bound = rest.partition(" ")
    reason = BY_NAME.get(name)
    if holder not in _PEERS or reason is None or bound not in BOUNDS:
        return f"{SIGNAL} {what}, {wait}" if wait else f"{SIGNAL} {what}"
    how_long = " ".join(word for word in (" for", bound, wait) if word) if wait else ""
    held_by = reason.held_by.format(peer=_PEERS[holder])
    return f"held by the {holder}'s kernel{how_long}: {held_by}: {reason.remedy.format(peer=_PEERS[holder])}"
