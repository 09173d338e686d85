"""The signal `retransmits`: what TCP sent again, and why.

The kernel records raw fields only; `reasons()` derives the reason from them, so that the rule can be run again over old
records. Its source: net/ipv4/tcp_timer.c, tcp_input.c, tcp_output.c; docs/design/evidence.md, "Retransmit reasons".
"""

import time
from collections.abc import Mapping, Sequence
from errno import errorcode

import numpy as np
from numpy.typing import NDArray

from latencyprobe_agent.signals.evidence import Evidence, Explains, Repeats, Sample
from latencyprobe_agent.signals.join_keys import BEGINNING, SENT_BYTES, JoinKey, first_of_streams, streams_behind
from latencyprobe_agent.vocabulary import conventions as names
from latencyprobe_agent.vocabulary.conventions import Attribute, AttributeValue, Metric
from latencyprobe_agent.vocabulary.records import RETRANSMIT, RetransmitKind, Role

# include/net/tcp_states.h
STATES = (
    *("", "ESTABLISHED", "SYN_SENT", "SYN_RECV", "FIN_WAIT1", "FIN_WAIT2", "TIME_WAIT", "CLOSE", "CLOSE_WAIT"),
    *("LAST_ACK", "LISTEN", "CLOSING", "NEW_SYN_RECV"),
)
FIN, SYN = 0x01, 0x02
JIFFY_US = round(time.clock_getres(6) * 1e6)  # CLOCK_MONOTONIC_COARSE moves once per jiffy

_ATTEMPTS = (RetransmitKind.SEGMENT, RetransmitKind.SYNACK)
_SYN_SENT, _SYN_RECV = 2, 3
_RECOVERY, _LOSS = 3, 4  # icsk_ca_state; below: Open, Disorder, CWR
_NO_TIMER, _RETRANSMIT, _LOSS_PROBE, _REORDERING = 0, 1, 5, 6  # icsk_pending


def reasons(rec: NDArray[np.void]) -> NDArray[np.str_]:
    """Return why each record was sent again: the first row of the table that matches. Empty for what sent nothing."""
    ca, pending, timeouts = rec["ca_state"], rec["icsk_pending"], rec["icsk_retransmits"]
    connected = ~np.isin(rec["tcp_state"], [_SYN_SENT, _SYN_RECV])
    table = {
        "": ~np.isin(rec["kind"], _ATTEMPTS),
        "failed": rec["err"] != 0,
        "synack": rec["kind"] == RetransmitKind.SYNACK,
        "syn": rec["tcp_flags"] & SYN != 0,
        "zero_window_probe": connected & (rec["snd_wnd"] == 0) & (ca == _LOSS) & (pending == _NO_TIMER),
        "tlp": (pending == _LOSS_PROBE) & (ca < _RECOVERY),
        "rack_reo": (ca == _RECOVERY) & (pending == _REORDERING),
        "fast": ca == _RECOVERY,
        "rto": (ca == _LOSS) & (timeouts >= 1) & (pending == _NO_TIMER),
        "slow_start": (ca == _LOSS) & np.isin(pending, [_RETRANSMIT, _REORDERING]),
        "pmtu": (ca == _LOSS) & (timeouts == 0) & (rec["undo_marker"] == 0),
    }
    return np.select(list(table.values()), list(table), "other")


def sent(rec: NDArray[np.void]) -> NDArray[np.bool_]:
    """Return bool[n]: which of RETRANSMIT[n] are segments sent again: no failed attempt, no undo, no mere counters."""
    was_sent: NDArray[np.bool_] = np.isin(rec["kind"], _ATTEMPTS) & (rec["err"] == 0)
    return was_sent


def columns(batch: NDArray[np.void]) -> Evidence:
    """Return a batch of RETRANSMIT records for the join. A bare FIN has no range of bytes. Raises TypeError for
    records of another kind."""
    if batch.dtype != RETRANSMIT:
        raise TypeError(f"expected records of RETRANSMIT, got {batch.dtype}")
    handshake = (batch["kind"] == RetransmitKind.SYNACK) | (batch["tcp_flags"] & SYN != 0)
    end_seq = np.where((batch["len"] == 0) & ~handshake, batch["seq"], batch["end_seq"])
    # the first response begins where the sequence of the SYN-ACK ends
    key = KEY.of(batch["flow"], seq=batch["seq"], end_seq=end_seq, first_seq=batch["end_seq"], handshake=handshake)
    return Evidence(batch, key, sent(batch))


def fields(record: np.void) -> Mapping[Attribute, AttributeValue]:
    """Return the attributes of one record's span event."""
    nth = int(record["nth"])
    return {
        names.REASON: str(reasons(record.reshape(1))[0]),
        names.RETRANSMIT_SEGMENTS: int(record["segs"]),
        names.RETRANSMIT_SIZE: int(record["len"]),
        names.TCP_STATE: STATES[record["tcp_state"]],
        **({names.RETRANSMIT_NTH: nth} if nth else {}),
    }


def samples(evidence: Evidence) -> Sequence[Sample]:
    """Return what was sent again and what was tried in vain, by the records of a batch."""
    rec = evidence.rec
    return _found(
        rec["flow"]["role"],
        (names.TCP_RETRANSMITS, np.where(evidence.joins, rec["segs"], 0), {names.REASON: reasons(rec)}),
        (names.TCP_RETRANSMITS_FAILED, (rec["err"] != 0).astype(np.int64), {names.REASON: _errors(rec["err"])}),
    )


def counted(keys: NDArray[np.void], gained: NDArray[np.void]) -> Sequence[Sample]:
    """Return what was sent, sent again and not needed, as the kernel has counted it; `unrecorded`: what is in no record
    that arrived."""

    def by(reason: str) -> Mapping[Attribute, NDArray[np.str_]]:
        return {names.REASON: np.full(len(keys), reason)}

    return _found(
        keys["role"],
        (names.TCP_RETRANSMITS, gained["segs_unrecorded"], by("unrecorded")),
        (names.TCP_RETRANSMITS_SPURIOUS, gained["undone"], by("undo")),
        (names.TCP_RETRANSMITS_SPURIOUS, gained["duplicates"], by("dsack")),
        (names.TCP_SENT_SEGMENTS, gained["segs_sent"], {}),
        (names.TCP_SENT_SIZE, gained["bytes_sent"], {}),
        (names.TCP_RETRANSMITTED_SEGMENTS, gained["segs_retrans"], {}),
        (names.TCP_RETRANSMITTED_SIZE, gained["bytes_retrans"], {}),
    )


def _found(
    role: NDArray[np.integer], *columns: tuple[Metric, NDArray[np.generic], Mapping[Attribute, NDArray[np.str_]]]
) -> Sequence[Sample]:
    """Return a sample of each metric whose values are not all 0, by direction."""
    direction = np.where(role == Role.CLIENT, "request", "response")
    found = []
    for metric, values, labels in columns:
        at = np.flatnonzero(values)
        if len(at):
            of_rows = {name: of_row[at] for name, of_row in {names.DIRECTION: direction, **labels}.items()}
            found.append(Sample(metric, at, values[at], of_rows, by_peer=metric is names.TCP_RETRANSMITS))
    return found


def attributes(records: NDArray[np.void]) -> Mapping[Attribute, AttributeValue]:
    """Return the attributes of an exchange's span, from the records that were joined to it."""
    return {names.RETRANSMITS: int(records["segs"].sum())}


def describe(record: np.void, new_ns: int) -> list[tuple[str, int, int]]:
    """Return reason, segments and cost of a record for a list of slow exchanges."""
    return [(str(reasons(record.reshape(1))[0]), int(record["segs"]), new_ns)]


def _errors(err: NDArray[np.int32]) -> NDArray[np.str_]:
    """Return the names of negative error numbers."""
    values, of_row = np.unique(err, return_inverse=True)
    return np.array([errorcode.get(-int(value), str(int(value))) for value in values], np.str_)[of_row]


def _find(recent: NDArray[np.void], key: NDArray[np.void]) -> NDArray[np.intp]:
    """A SYN or SYN-ACK explains what its connection begins with, everything else the message whose bytes it has, of
    streams the oldest one behind them."""
    found = np.empty(len(key), np.intp)
    for rows, by in ((key["handshake"], BEGINNING), (~key["handshake"], SENT_BYTES)):
        found[rows] = by.find(recent, key.take(np.flatnonzero(rows)))
    first_of_streams(recent, key, found)
    return found


def _also(
    recent: NDArray[np.void], key: NDArray[np.void], found: NDArray[np.intp]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    return streams_behind(recent, key, np.where(key["handshake"], -1, found))


def _first_sent_ns(half: NDArray[np.void], key: NDArray[np.void]) -> NDArray[np.int64]:
    """Return when all of a half's message had been sent, if that was before the record, else when it was begun."""
    whole = (half["send_end_ns"] > 0) & (half["send_end_ns"] < key["at_ns"])
    return np.where(whole, half["send_end_ns"], half["send_start_ns"])


_OF_BEGINNING = [("first_seq", "u4"), ("local_port", "u2"), ("peer_port", "u2")]
KEY = JoinKey(np.dtype([*SENT_BYTES.columns.descr, *_OF_BEGINNING, ("handshake", "?")]), _find, _also)
EXPLAINS = Explains(
    names.RETRANSMIT_EVENT,
    fields,
    samples,
    describe,
    attributes,
    counted=counted,
    waits=Repeats(same=lambda key: key[["sock_cookie", "seq"]], first_ns=_first_sent_ns),
)
