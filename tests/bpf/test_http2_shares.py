"""Room for open calls of HTTP/2 is shared out by namespace: docs/design/http2.md, "Memory"."""

from pathlib import Path
from random import Random

import pytest

from latencyprobe.plan import TargetPod
from latencyprobe.protocol import Protocol
from latencyprobe_agent.identity.cgroups import find_root
from latencyprobe_agent.measure.rules import compile_rules
from latencyprobe_agent.vocabulary.records import Outcome
from tests.support.plans import of, plan_of
from tests.support.ports import free_port
from tests.truth.http2 import ASK, Connection, Type, frame
from tests.truth.http2_script import SEED, ask_only
from tests.truth.streams import Streams

pytestmark = pytest.mark.root

MOST, MOST_OPEN = 65_536, 4096  # streams of a node and of a connection, http2_connection.bpf.h
PORTS = {name: free_port() for name in ("audit", "evil", "shop")}


def measure(streams: Streams, *namespaces: str) -> dict[str, int]:
    """Measure a server of each namespace. Returns their target sets. All are of this process, so their pod is one."""
    cgroup = find_root() / Path("/proc/self/cgroup").read_text().rpartition("0::/")[2].strip()
    targets = [
        of(name, "web", pods=(TargetPod("pod", (PORTS[name],)),), protocol=Protocol.HTTP2) for name in namespaces
    ]
    session = streams.session
    session.rules = compile_rules(plan_of(*targets), {"pod": [cgroup.stat().st_ino]}, session.rules)
    session.programs.apply(session.rules, idle_timeout_ns=2 * 10**9, own_tgid=0, owner_by_process=False, http2=True)
    return {one.namespace: number for number, one in session.rules.sets.items()}


def test_who_leaves_many_calls_open_leaves_room_for_those_of_others(streams: Streams) -> None:
    sets = measure(streams, "evil", "shop")
    greedy = [Connection.open(PORTS["evil"]) for _ in range(MOST // MOST_OPEN + 1)]
    for one in greedy:
        one.greet()
        ask_only(one, MOST_OPEN)
    connection = Connection.open(PORTS["shop"])
    connection.greet()
    ask_only(connection, 3)
    for stream in (1, 3, 5):
        connection.answers.put(frame(Type.HEADERS, ASK, stream, bytes(10)))
    connection.settle(Random(SEED))
    asked = len(greedy) * MOST_OPEN
    refused = streams.session.programs.unaccounted()
    assert refused.keys() == {sets["evil"]}
    assert streams.open() == asked - refused[sets["evil"]] <= MOST // 2
    found = streams.records(3)
    assert found["stream_id"].tolist() == [1, 3, 5]
    assert set(found["target_set"].tolist()) == {sets["shop"]}
    assert set(found["outcome"].tolist()) == {Outcome.OK}
    for one in (*greedy, connection):
        one.close()
    again = Connection.open(PORTS["evil"])
    again.greet()
    ask_only(again, 5)
    assert streams.open() == 5, "there is room again"
    again.close()


def test_who_is_measured_later_does_not_inherit_the_calls_that_others_have_open(streams: Streams) -> None:
    measure(streams, "shop")
    greedy = [Connection.open(PORTS["shop"]) for _ in range(MOST // MOST_OPEN // 2)]
    for one in greedy:
        one.greet()
        ask_only(one, MOST_OPEN)
    open_ = streams.open()
    sets = measure(streams, "audit", "shop")  # the first by name
    connection = Connection.open(PORTS["audit"])
    connection.greet()
    ask_only(connection, 5)
    assert streams.open() == open_ + 5
    assert sets["audit"] not in streams.session.programs.unaccounted()
    for one in (*greedy, connection):
        one.close()
