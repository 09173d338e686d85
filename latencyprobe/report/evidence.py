"""What a signal says of one exchange, as a sentence for a person; `words.explained` is the short form. Pure.

The machine's word stands in brackets where it leads to the live tool's rows and to docs/evidence.md. What has no
sentence here, because it is of another version, is said in the short form.
"""

from latencyprobe import causes, stages, unsent
from latencyprobe.plan import Role
from latencyprobe.report import words
from latencyprobe.report.model import EvidenceSummary, Result, Slow
from latencyprobe.stages import Stage

_RETRANSMITS, _WAITS, _TCPRT = "retransmits", "waits", "tcprt"  # by their switches, as words.HANDSHAKES
_OPENING = ("syn", "synack")
_SENT_AGAIN = {
    "fast": "{segments} sent again because ACKs told of a hole (fast)",
    "rack_reo": "{segments} sent again because a hole in the ACKs outlasted the timer for reordering (rack_reo)",
    "tlp": "{segments} sent again as a tail loss probe, without an answer to the last ones (tlp)",
    "rto": "{segments} sent again after a timeout, without an ACK (rto)",
    "slow_start": "{segments} sent again after an earlier timeout, as ACKs came back (slow_start)",
    "syn": "the SYN was sent again, without an answer (syn)",
    "synack": "the SYN-ACK was sent again, without an answer (synack)",
    "zero_window_probe": "{segments} sent again to find room at the other end, which reads too slowly "
    "(zero_window_probe)",
    "pmtu": "{segments} sent again in smaller packets because the path takes no larger ones (pmtu)",
    "other": "{segments} sent again for a reason that TCP's state does not tell (other)",
    "server": "segments were sent again by the server's kernel",
}
_OPENED = {"ok": "the connection was opened", "simultaneous": "the connection was opened by both ends at once"}
_WAITED = {
    "server": "the server's thread waited for a CPU, or in a call",
    causes.OTHER: "blocked in other calls",
}
_UNDER_WAY = {
    "R": ("the answer was under way until its last ACK (TCP-RT, R)", "request"),
    "P": ("the request was sent, from first to last segment (TCP-RT, P)", "answer"),
    "W": ("the connection was closed before all of the answer had its ACK (TCP-RT, W)", "request"),
}
_PART_OF = {
    _RETRANSMITS: (stages.SEND, stages.NETWORK, stages.WAIT, stages.RECEIVE),
    unsent.SIGNAL: (stages.NETWORK, stages.WAIT, stages.RECEIVE),
    _WAITS: (stages.PROCESS, stages.WAIT),
}


def sentence(one: EvidenceSummary, result: Result, slow: Slow) -> str:
    """Return what a signal says of one exchange of `result`."""
    how_long = words.short(one.wait, 3) if one.wait else ""
    if one.signal == _RETRANSMITS and (again := _SENT_AGAIN.get(one.what)):
        segments = f"{one.count} segments were" if one.count > 1 else "a segment was"
        return _timed(again.format(segments=segments), how_long and f"at most {how_long}")
    if one.signal == words.HANDSHAKES and (opened := _OPENED.get(one.what)):
        with_syns = f" with {one.count} SYNs" if one.count > 1 else ""
        of_server = "a round trip of " if result.perspective == Role.SERVER else ""
        return _timed(opened + with_syns, how_long and f"{of_server}{how_long}, outside of this RPC's own time")
    if one.signal == _WAITS:
        times = f", {one.count} times" if one.count > 1 else ""
        return _timed(f"of it {_waited(one.what)}{times}", how_long)
    record, _, reordered = one.what.partition(" ")
    if one.signal == _TCPRT and record in _UNDER_WAY and reordered in ("", "reordered"):
        under_way, received = _UNDER_WAY[record]
        return _timed(under_way, how_long) + (f"; the {received} came out of order" if reordered else "")
    return words.explained(one, result, slow)


def is_before(one: EvidenceSummary) -> bool:
    """Return whether it was before the exchange, and in no duration of it: how its connection opened."""
    return one.signal == words.HANDSHAKES or (one.signal == _RETRANSMITS and one.what in _OPENING)


def is_part_of(stage: Stage, one: EvidenceSummary, result: Result) -> bool:
    """Return whether its time can be time of such a stage of an exchange of `result`. What an end's own kernel held is
    in nothing that it receives."""
    of_sender = one.signal == unsent.SIGNAL and one.what.startswith(result.perspective.lower())
    if is_before(one) or (of_sender and stage is stages.RECEIVE):
        return False
    return stage in _PART_OF.get(one.signal, ())


def _waited(what: str) -> str:
    if what in _WAITED:
        return _WAITED[what]
    cause = what.partition(" (")[0]
    is_call = causes.is_cause(cause) and cause not in causes.ALL
    return f"blocked in {what}" if is_call else causes.told(what)


def _timed(said: str, how_long: str) -> str:
    return f"{said}: {how_long}" if how_long else said
