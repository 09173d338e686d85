"""One connection in tests of whose turn it is: its pause, its first two turns, and what is told of all others."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from latencyprobe_agent.vocabulary.records import Excluded, Outcome, Role
from tests.truth.calls import ROLES
from tests.truth.peers import Peers
from tests.truth.session import Session
from tests.truth.sides import of_role

MS = 1_000_000
PAUSE_NS = 500 * MS  # what a machine that is busy with other tests takes for a step of a turn is less


def fall_silent() -> None:
    """Let no byte move for longer than the pause."""
    time.sleep(1.5 * PAUSE_NS / 1e9)


@contextmanager
def two_turns(session: Session, port: int) -> Iterator[Peers]:
    """A connection that is measured from its beginning and has taken two turns."""
    session.measure(port, pause_ns=PAUSE_NS, idle_timeout_ns=20_000 * MS)
    connected = Peers(port)
    connected.turn()
    connected.turn()
    yield connected
    connected.close()


def words(record: np.void) -> str:
    """What became of it: the class and reason of what is no event, the outcome of a failure, else ok."""
    if record["excluded"]:
        return str(Excluded(int(record["excluded"])).name)
    return str(Outcome(int(record["outcome"])).name)


def assert_turns(records: NDArray[np.void], *expected: str, roles: tuple[Role, ...] = ROLES) -> None:
    """The turns after the first two, at both ends."""
    for role in roles:
        assert [words(record) for record in of_role(records, role)][2:] == list(expected), role.name
