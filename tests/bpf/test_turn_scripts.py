"""Random connections whose every message is known: the kernel makes of them what the rules say, and no event is untrue.

SCRIPTS=100000 in the environment plays so many, SEED=7 begins with script 7: to see it alone, SCRIPTS=1 SEED=7. On slow
machines PAUSE_MS=100 and SCRIPTS_AT_ONCE=10.
"""

import os
import random
from collections.abc import Iterable

import numpy as np
import pytest

from latencyprobe_agent.vocabulary.records import Role
from tests.support.ports import free_port
from tests.truth.both_ends import stage
from tests.truth.endings import Author
from tests.truth.findings import Findings, Records
from tests.truth.pen import SIZES, SIZES_IN_TLS
from tests.truth.played import Played
from tests.truth.playing import play
from tests.truth.script_checks import modelled
from tests.truth.scripts import IDLE_NS, PAUSE_NS

pytestmark = pytest.mark.root

SCRIPTS = int(os.environ.get("SCRIPTS", "2000"))
SEED = int(os.environ.get("SEED", random.randrange(1_000_000_000)))
AT_ONCE = int(os.environ.get("SCRIPTS_AT_ONCE", "200"))
TOGETHER = 5000  # scripts that are played before any is looked at


def with_cookies_of_log(everything: np.ndarray, played: Iterable[Played]) -> np.ndarray:
    """The records with the log's socket cookies, for kernels that give programs none: found by ports and addresses."""
    cookies = {(one.port, int(one.address.rpartition(".")[2])): one.cookies for one in played}
    known = everything.copy()
    for record in known:
        role = Role(int(record["role"]))
        port, address = ("local_port", "peer_addr") if role is Role.CLIENT else ("peer_port", "local_addr")
        record["sock_cookie"] = cookies[int(record[port]), int(record[address][-1])][role]
    return known


def records_by_end(everything: np.ndarray, played: Iterable[Played]) -> list[Records]:
    """Per connection the records of each of its ends, in order."""
    grouped = everything[np.argsort(everything["sock_cookie"], kind="stable")]
    cookies, begin, counts = np.unique(grouped["sock_cookie"], return_index=True, return_counts=True)
    of_cookie = {cookie: grouped[i:][:n] for cookie, i, n in zip(cookies.tolist(), begin, counts, strict=True)}
    return [{role: of_cookie.get(cookie, everything[:0]) for role, cookie in one.cookies.items()} for one in played]


@pytest.mark.timeout(300 + SCRIPTS // 50)
@pytest.mark.parametrize("tls", [False, True], ids=["clear", "tls"])
def test_random_connections_are_what_they_are_known_to_be(session, tls):
    """In TLS: of messages of an alert's length, whose last ones are goodbyes."""
    port, found = free_port(), Findings()
    session.measure(port, pause_ns=PAUSE_NS, idle_timeout_ns=IDLE_NS, tls=tls)
    sizes = SIZES_IN_TLS if tls else SIZES
    print(f"SEED={SEED} SCRIPTS={SCRIPTS}")
    flush = session.programs.flush if session.kernel_cookies else None
    for first in range(SEED, SEED + SCRIPTS, TOGETHER):
        seeds = range(first, min(first + TOGETHER, SEED + SCRIPTS))
        with stage():
            played = play((Author(seed, sizes).write() for seed in seeds), port, flush, AT_ONCE)
        ends = [modelled(one, tls=tls) for one in played]
        everything = session.fresh_records(sum(len(end.turns) for both in ends for end in both.values()))
        if not session.kernel_cookies:
            everything = with_cookies_of_log(everything, played)
        for one, both, records in zip(played, ends, records_by_end(everything, played), strict=True):
            found.look(one, both, records)
    missed = session.programs.lost()["recursion"]
    print(f"{found}\nskipped firings: {missed}")
    assert found.faulty <= missed, found.report()
