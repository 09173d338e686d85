"""Streaming calls of HTTP/2: no SLI events, since how long they take is what they are for; shown all the same.

They become spans and pairs. What is judged of them is the time to their first answer. Streaming responses of turns are
not shown: where they end is not known. docs/design/http2.md, "Calls".
"""

import numpy as np
from numpy.typing import NDArray

from latencyprobe_agent.vocabulary.records import Excluded, Outcome, Role


def streaming(rec: NDArray[np.void]) -> NDArray[np.bool_]:
    """Return bool[n]: which of EXCHANGE[n] are streaming calls of HTTP/2."""
    found: NDArray[np.bool_] = (rec["excluded"] == Excluded.STREAMING) & (rec["stream_id"] != 0)
    return found


def first_answer_ns(rec: NDArray[np.void]) -> NDArray[np.int64]:
    """Return i64[n]: from the first byte of each request to the first of its answer, at this end; 0 without an answer.

    At least 1 with one: the stamps of an answer that overtook its request are in the other order.
    """
    client = rec["role"] != Role.SERVER
    asked_ns = np.where(client, rec["send_start_ns"], rec["ready_first_ns"]).astype(np.int64)
    answered_ns = np.where(client, rec["ready_first_ns"], rec["send_start_ns"]).astype(np.int64)
    return np.where(answered_ns > 0, np.maximum(answered_ns - asked_ns, 1), 0)


def failed(rec: NDArray[np.void]) -> NDArray[np.bool_]:
    """Return bool[n]: which of EXCHANGE[n] failed. RST_STREAM is how a subscription is ended, and no failure of one."""
    found: NDArray[np.bool_] = rec["outcome"] != Outcome.OK
    if found.any():
        found = found & ~((rec["outcome"] == Outcome.STREAM_RESET) & streaming(rec))
    return found
