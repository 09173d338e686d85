"""Join what was measured with the workload generator's own log, RPC by RPC.

Receives the two NumPy logs of truth.c and arrays of `records.EXCHANGE` (or the engine's halves of them), returns who
matches whom and the signed errors. Pure functions over arrays; used by tests/bpf and by the end-to-end tests.
A record belongs to an RPC when socket cookie and 64-bit stream offset of the request's first byte agree: both are
known to the generator without looking at the product.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]
CLIENT, SERVER = 1, 2
NAMES = {CLIENT: "client", SERVER: "server"}
STAGES = {CLIENT: ("send", "wait", "receive", "read_delay"), SERVER: ("receive", "read_delay", "process", "send")}
CUTS = {
    CLIENT: ("send_start_ns", "send_end_ns", "ready_first_ns", "ready_last_ns", "read_last_ns"),
    SERVER: ("ready_first_ns", "ready_last_ns", "read_last_ns", "send_start_ns", "send_end_ns"),
}
ONE_SEGMENT = 1_000  # bytes that leave in one segment, whatever the link


@dataclass(frozen=True)
class Truth:
    """The logs of both sides; row i of both is the same RPC. Offsets: of its first bytes in the two byte streams."""

    client: NDArray[np.void]
    server: NDArray[np.void]
    request_offset: I64
    response_offset: I64

    @classmethod
    def load(cls, client_log: Path, server_log: Path) -> "Truth":
        """Read and align the logs. Raises ValueError if they do not hold the same RPCs: the oracle itself failed."""
        client, server = (np.sort(np.load(path), order="rpc") for path in (client_log, server_log))
        for name in ("rpc", "ordinal", "request_bytes", "response_bytes", "cause"):
            if len(client) != len(server) or (client[name] != server[name]).any():
                msg = f"the generator's own logs disagree in {name}: {len(client)} and {len(server)} RPCs"
                raise ValueError(msg)
        if (client["local_port"] != server["peer_port"]).any():
            msg = "the generator's own logs disagree in the client's port"
            raise ValueError(msg)
        order = np.lexsort((client["ordinal"], client["cookie"]))
        request, response = (_offsets(client, order, name) for name in ("request_bytes", "response_bytes"))
        return cls(client, server, request, response)

    def __len__(self) -> int:
        return len(self.client)

    def side(self, role: int) -> NDArray[np.void]:
        """The log of one role."""
        return self.client if role == CLIENT else self.server

    def brackets(self, role: int) -> dict[str, tuple[I64, I64]]:
        """Stamp → (earliest, latest) ns: the log's own readings of the clock around what it tells of, per RPC.

        Exact whatever the scheduler does. Bytes are not readable before the kernel took their segment from its device,
        which it says of a message of one segment, and not after the reader found them or its call took them.
        """
        log, writer = self.side(role), self.side(3 - role)
        size = log["request_bytes" if role == SERVER else "response_bytes"]
        begun, arrived = writer["send_start_ns"], log["arrival_last_ns"]
        told = (arrived > begun) & (arrived < log["read_last_ns"])  # else no stamp, or the wall clock was set
        last = np.where(told, arrived, begun)
        one_segment = (writer["send_calls"] == 1) & (size <= ONE_SEGMENT)
        return {
            "send_start_ns": (log["send_start_ns"], log["first_sent_ns"]),
            "send_end_ns": (log["send_last_begin_ns"], log["send_end_ns"]),
            "ready_first_ns": (np.where(one_segment, last, begun), log["readable_ns"]),
            "ready_last_ns": (last, np.where(log["readable"] >= size, log["readable_ns"], log["read_last_ns"])),
            "read_first_ns": (log["read_first_begin_ns"], log["read_first_ns"]),
            "read_last_ns": (log["read_last_begin_ns"], log["read_last_ns"]),
        }

    def stages(self, role: int) -> tuple[I64, I64]:
        """(Least, most) ns of each stage, int64[n, 4] in the order of `STAGES[role]`, for stamps within `brackets`.

        Cut points come in fixed order, each is at least its predecessor.
        """
        low, high = self._cuts(role)
        return np.maximum(low[1:] - high[:-1], 0).T, (high[1:] - low[:-1]).T

    def duration_ns(self, role: int) -> tuple[I64, I64]:
        """(Least, most) duration of each half, int64[n]."""
        low, high = self._cuts(role)
        return np.maximum(low[-1] - high[0], 0), high[-1] - low[0]

    def _cuts(self, role: int) -> tuple[I64, I64]:
        of = self.brackets(role)
        low, high = (np.stack([of[name][end] for name in CUTS[role]]) for end in (0, 1))
        return np.maximum.accumulate(low), np.maximum.accumulate(high)


def with_cookies_of_log(truth: Truth, records: NDArray[np.void]) -> NDArray[np.void]:
    """Return `records` with the log's cookies, found by the ports, for kernels that give programs none (Linux 5.10).

    A port may be used again (Linux does so on loopback after a second): such connections are told by their order.
    Raises ValueError unless each connection of the log has one number in the records, and each number one connection.
    """
    known = records.copy()
    for role in (CLIENT, SERVER):
        rows = np.flatnonzero(records["role"] == role)
        ports, cookies = _connections(truth.side(role), "cookie")
        found, numbers = _connections(records[rows], "sock_cookie")
        if ports != found:
            raise ValueError(f"{len(ports)} connections are not one to one with {len(found)} in the records")
        cookie_of = dict(zip(numbers, cookies, strict=True))
        known["sock_cookie"][rows] = [cookie_of[number] for number in records["sock_cookie"][rows].tolist()]
    return known


def _connections(of: NDArray[np.void], number: str) -> tuple[list[tuple[int, int]], list[int]]:
    """Return ports and number of each connection, by ports, those of the same ones as they began. Raises ValueError
    where two have one number."""
    began_ns: dict[tuple[int, int, int], int] = {}
    names = ("local_port", "peer_port", number, "send_start_ns")
    for local, peer, of_socket, ns in zip(*(of[name].tolist() for name in names), strict=True):
        one = (local, peer, of_socket)
        began_ns[one] = min(ns, began_ns.get(one, ns))
    in_order = sorted(began_ns, key=lambda one: (*one[:2], began_ns[one]))
    ports, numbers = [one[:2] for one in in_order], [one[2] for one in in_order]
    if len(set(numbers)) < len(numbers):
        raise ValueError(f"{len(numbers)} connections have {len(set(numbers))} numbers")
    return ports, numbers


@dataclass(frozen=True)
class Match:
    """`record[role][i]`: index of the record of RPC i, -1 = missing. `extra[role]`: records that belong to no RPC."""

    record: dict[int, I64]
    extra: dict[int, I64]

    def missing(self, role: int) -> I64:
        """Indices of RPCs without a record."""
        return np.flatnonzero(self.record[role] < 0)

    def describe(self) -> str:
        """One line for test output."""
        return ", ".join(
            f"{name}: {(self.record[role] >= 0).sum()} matched, {len(self.missing(role))} missing, "
            f"{len(self.extra[role])} extra"
            for role, name in NAMES.items()
        )


def match(truth: Truth, records: NDArray[np.void]) -> Match:
    """Find the record of each RPC and side. Records of other sockets or roles are extra."""
    found: dict[int, I64] = {}
    extra: dict[int, I64] = {}
    for role in (CLIENT, SERVER):
        rows = np.flatnonzero(records["role"] == role)
        offset = records["request_offset"][rows].astype(np.int64)
        ours, theirs = _common_keys(
            (truth.side(role)["cookie"], truth.request_offset), (records["sock_cookie"][rows], offset)
        )
        keys, first = np.unique(theirs, return_index=True)
        at = np.minimum(np.searchsorted(keys, ours), max(len(keys) - 1, 0))
        hit = keys[at] == ours if len(keys) else np.zeros(len(ours), bool)
        found[role] = np.where(hit, rows[first[at]] if len(keys) else -1, -1)
        extra[role] = np.setdiff1d(rows, found[role])
    return Match(found, extra)


def disagreements(truth: Truth, records: NDArray[np.void], matched: Match) -> dict[str, int]:
    """How many matched records differ from the log in what must be equal to the last unit."""
    differ: dict[str, int] = {}
    for role, name in NAMES.items():
        log, record = _matched(truth, records, matched, role)
        rows = matched.record[role] >= 0
        expected = {field: log[field] for field in ("request_bytes", "response_bytes", "local_port", "peer_port")}
        expected |= {field: log[field] for field in ("send_calls", "recv_calls")}
        expected["response_offset"] = truth.response_offset[rows]
        differ |= {f"{name} {field}": int((record[field] != value).sum()) for field, value in expected.items()}
    return differ


def outside_calls(truth: Truth, records: NDArray[np.void], matched: Match) -> dict[str, int]:
    """How many stamps lie outside the socket calls that they belong to, by the generator's own clock readings."""
    outside: dict[str, int] = {}
    for role, name in NAMES.items():
        _, record = _matched(truth, records, matched, role)
        for field, (low, high) in _matched_brackets(truth, matched, role).items():
            stamp = record[field].astype(np.int64)
            outside[f"{name} {field}"] = int(((stamp < low) | (stamp > high)).sum())
    return outside


def outside_stages(truth: Truth, stages: I64, matched: Match) -> dict[str, int]:
    """How many stages (int64[records, 4], in the order of the records) are shorter or longer than the log allows."""
    outside: dict[str, int] = {}
    for role, name in NAMES.items():
        rows = matched.record[role] >= 0
        least, most = (bound[rows] for bound in truth.stages(role))
        found = stages[matched.record[role][rows]]
        wrong = ((found < least) | (found > most)).sum(axis=0)
        outside |= {f"{name} {stage}": int(n) for stage, n in zip(STAGES[role], wrong, strict=True)}
    return outside


def pair_stages(client: I64, server: I64) -> I64:
    """int64[n, 6]: the stages of pairs, of those of their halves (measurement.md section 4).

    The second one, `network`, is what is left of the client's duration; less than 0 where parts lay side by side.
    """
    client_send = np.minimum(client[:, 0], server[:, 0])
    network = client.sum(axis=1) - client_send - server[:, 1:].sum(axis=1) - client[:, 3]
    return np.column_stack([client_send, network, server[:, 1:], client[:, 3]])


def stamp_errors(truth: Truth, records: NDArray[np.void], matched: Match) -> dict[str, I64]:
    """Signed error of each stamp in ns, over all matched RPCs: less the log's reading that is next to it.

    That is the one just before a send call begins, just after any call returned, and for bytes that became readable the
    kernel's receive stamp, which it takes before IP and TCP see the segment: for messages of a single segment.
    """
    errors: dict[str, I64] = {}
    for role, name in NAMES.items():
        _, record = _matched(truth, records, matched, role)
        for field, (low, high) in _matched_brackets(truth, matched, role).items():
            nearest = low if field == "send_start_ns" or field.startswith("ready") else high
            errors[f"{name} {field}"] = record[field].astype(np.int64) - nearest
    return errors


def pairs_by_rpc(truth: Truth, matched: Match, client_rows: I64, server_rows: I64) -> tuple[I64, int]:
    """Check pairs given as record indices: (per RPC the position of its right pair or -1, number of wrong pairs)."""
    records = max(client_rows.max(initial=-1), server_rows.max(initial=-1)) + 1
    rpc = {role: np.full(records, -1) for role in (CLIENT, SERVER)}
    for role, owner in rpc.items():
        index = matched.record[role]
        known = (index >= 0) & (index < len(owner))
        owner[index[known]] = np.flatnonzero(known)
    client, server = rpc[CLIENT][client_rows], rpc[SERVER][server_rows]
    right = (client == server) & (client >= 0)
    position = np.full(len(truth), -1)
    position[client[right]] = np.flatnonzero(right)
    return position, int((~right).sum())


def _matched(
    truth: Truth, records: NDArray[np.void], matched: Match, role: int
) -> tuple[NDArray[np.void], NDArray[np.void]]:
    rows = matched.record[role]
    return truth.side(role)[rows >= 0], records[rows[rows >= 0]]


def _matched_brackets(truth: Truth, matched: Match, role: int) -> dict[str, tuple[I64, I64]]:
    rows = matched.record[role] >= 0
    return {field: (low[rows], high[rows]) for field, (low, high) in truth.brackets(role).items()}


def _offsets(log: NDArray[np.void], order: I64, size: str) -> I64:
    """Sum of the sizes of the earlier messages on each connection; `order` sorts by connection and ordinal."""
    sizes = log[size][order].astype(np.int64)
    before = np.cumsum(sizes) - sizes
    first = log["ordinal"][order] == 0
    starts = np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))
    offsets = np.empty(len(log), np.int64)
    offsets[order] = before - before[starts]
    return offsets


def _common_keys(*sides: tuple[NDArray[np.uint64], I64]) -> list[I64]:
    """One integer per (cookie, offset), the same for equal keys in all sides. Offsets stay below 2^40."""
    _, number = np.unique(np.concatenate([cookie for cookie, _ in sides]), return_inverse=True)
    keys = (number.astype(np.int64) << 40) + np.concatenate([offset for _, offset in sides])
    return np.split(keys, np.cumsum([len(offset) for _, offset in sides])[:-1])
