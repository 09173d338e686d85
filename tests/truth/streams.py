"""A session whose ports are measured by stream, and what it was told of them."""

import os
from collections import Counter
from contextlib import AbstractContextManager, suppress

import numpy as np
import pytest

from latencyprobe.protocol import Protocol
from latencyprobe_agent.kernel.http2 import Http2Programs
from latencyprobe_agent.measure.halves import halves
from latencyprobe_agent.measure.pairing import LocalJoin
from latencyprobe_agent.vocabulary.records import ExchangeClass, Excluded, Outcome, Role
from tests.support.waiting import wait_until
from tests.truth.recorder import OBJECTS
from tests.truth.session import Session

_LONG_NS = 100_000_000_000


def of_kernels_that_tell_streams() -> None:
    """End a test on kernels before 6.12, which give tracing programs no bpf_dynptr_from_skb."""
    if tuple(map(int, os.uname().release.split(".")[:2])) < (6, 12):
        pytest.xfail("this kernel gives no way to tell streams of HTTP/2")


class Streams(AbstractContextManager["Streams"]):
    """The programs for HTTP/2 beside those of a session."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.programs = Http2Programs.beside(session.programs, OBJECTS)

    def __exit__(self, *_: object) -> None:
        self.programs.close()

    def measure(self, *ports: int, pause_ns: int = _LONG_NS, **fields: object) -> None:
        """Measure both ends of connections to `ports`, as `Session.measure()` does; no pause is told by default."""
        self.session.measure(*ports, pause_ns=pause_ns, protocol=Protocol.HTTP2, **fields)

    def records(self, count: int) -> np.ndarray:
        """Return the records of streams so far, once there are so many, or after some seconds."""

        def so_far() -> np.ndarray:
            records = self.session.records()
            return records[records["stream_id"] > 0]

        with suppress(AssertionError):
            wait_until(lambda: len(so_far()) >= count, f"{count} records of streams")
        return so_far()

    def records_of_ended(self) -> np.ndarray:
        """Return the records of streams once none is open."""
        wait_until(lambda: self.open() == 0, "no stream is open", seen=self.open)
        self.session.drained()
        return self.records(0)

    def turns(self) -> np.ndarray:
        """Return the records of turns so far."""
        records = self.session.records()
        return records[records["stream_id"] == 0]

    def open(self) -> int:
        """Return how many streams the kernel holds as open."""
        return len(list(self.programs.map("streams").keys()))


def by_id(records: np.ndarray, role: Role) -> dict[int, np.void]:
    """Return the records of one end, by stream: each once."""
    of_role = records[records["role"] == role]
    found = dict(zip(of_role["stream_id"].tolist(), of_role, strict=True))
    assert len(found) == len(of_role), "a stream was told twice"
    return found


def assert_unary(found: np.ndarray, count: int) -> None:
    """Each call on one connection is an event, once at each end, and the ends are pairs."""
    for role in (Role.CLIENT, Role.SERVER):
        assert len(by_id(found, role)) == count
    assert Counter(found["conn_class"].tolist()) == {ExchangeClass.UNARY: 2 * count}
    assert Counter(found["excluded"].tolist()) == {Excluded.NONE: 2 * count}
    assert Counter(found["outcome"].tolist()) == {Outcome.OK: 2 * count}
    pairs = LocalJoin(2 * count).join(halves(found.copy()))
    assert len(pairs) == count
    for name in ("stream_id", "request_offset", "response_offset", "request_bytes", "response_bytes"):
        assert (pairs.client.rec[name] == pairs.server.rec[name]).all(), name
    assert (pairs.client.start_ns <= pairs.server.start_ns).all()
    assert (pairs.client.end_ns >= pairs.server.rec["send_start_ns"]).all()
