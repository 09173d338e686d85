"""Stages: how the duration of a half, and of a joined pair, is made up. docs/design/measurement.md, "Stages".

Arrays in, arrays out, all times in ns; only differences between stamps of one host are used. The kernel cuts the
same way for its counts (bpf/exchange_account.bpf.h).
"""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from latencyprobe.stages import (
    CLIENT,
    CLIENT_READ_DELAY,
    CLIENT_SEND,
    NETWORK,
    PAIR,
    SERVER,
    SERVER_PROCESS,
    SERVER_READ_DELAY,
    SERVER_SEND,
    names,
)
from latencyprobe_agent.vocabulary.records import Role

I64 = NDArray[np.int64]

SERVER_STAGES, CLIENT_STAGES, PAIR_STAGES = names(SERVER), names(CLIENT), names(PAIR)
NETWORK_AT = PAIR.index(NETWORK)
# What a pair gives up first when its parts overlap in time: the tail of the server's send ran beside the delivery.
_GIVES_WAY = (SERVER_SEND, SERVER_PROCESS, SERVER_READ_DELAY, CLIENT_READ_DELAY, CLIENT_SEND)


def half_stages(role: int) -> tuple[str, ...]:
    """Return the names of the stages of one half, as it is cut: who is no server as a client."""
    return SERVER_STAGES if role == Role.SERVER else CLIENT_STAGES


def cut(stamps: I64) -> tuple[I64, I64, NDArray[np.bool_]]:
    """Cut halves at their stamps (i64[5, n], `Exchanges.stamps`): return points i64[5, n], stages i64[n, 4], overlap.

    Every point is max(previous point, stamp), so stages are never negative and sum to the duration; the columns of the
    stages are contiguous. `overlap` tells where a stamp lay before its predecessor; a stamp that was not taken (0)
    makes an empty stage and no overlap. A half whose first stamp is missing starts at its earliest one.
    """
    unopened = np.flatnonzero(stamps[0] == 0)
    if len(unopened):
        stamps = stamps.copy()
        taken = stamps[:, unopened]
        stamps[0, unopened] = np.where(taken == 0, taken.max(axis=0), taken).min(axis=0)
    points = stamps.copy()
    for before, point in pairwise(points):
        np.maximum(before, point, out=point)
    late = stamps < points
    overlap = (late & (stamps != 0)).any(axis=0) if late.any() else np.zeros(stamps.shape[1], np.bool_)
    return points, (points[1:] - points[:-1]).T, overlap


def pair_stages(client: I64, server: I64) -> I64:
    """Return i64[m, p], the p stages of `stages.PAIR` of m pairs, from the stages of their halves (i64[m, 4] each).

    They sum to the client's duration. `network` is the remainder: the way there of the request's first byte, the way
    back of the response's last, and transfer beyond the writer's pace. It would be negative where parts of the server
    ran beside the client's (a send call that returns after its bytes were read): then those parts are shortened.
    """
    send, wait, receive, read_delay = client.T
    server_receive, server_read_delay, server_process, server_send = server.T
    parts = {
        CLIENT_SEND: np.minimum(send, server_receive),
        NETWORK: np.zeros_like(send),
        SERVER_READ_DELAY: server_read_delay,
        SERVER_PROCESS: server_process,
        SERVER_SEND: server_send,
        CLIENT_READ_DELAY: read_delay,
    }
    stages = np.stack([parts[stage] for stage in PAIR]).T
    network = send + wait + receive + read_delay - stages.sum(axis=1)
    stages[:, NETWORK_AT] = np.maximum(network, 0)
    excess = np.maximum(-network, 0)
    for column in map(PAIR.index, _GIVES_WAY) if excess.any() else ():
        shorter = np.minimum(stages[:, column], excess)
        stages[:, column] -= shorter
        excess -= shorter
    return stages
