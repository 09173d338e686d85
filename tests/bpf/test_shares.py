"""A ring that fills up is shared out by namespace: docs/design/measurement.md, "Record sampling"."""

from pathlib import Path

import numpy as np
import pytest

from latencyprobe.plan import TargetPod
from latencyprobe_agent.identity.cgroups import find_root
from latencyprobe_agent.kernel.programs import share_records
from latencyprobe_agent.measure.rules import compile_rules
from latencyprobe_agent.vocabulary.records import WINDOW_SHIFT
from tests.support.plans import of, plan_of
from tests.support.ports import free_port
from tests.support.waiting import wait_until
from tests.truth.peers import Peers

pytestmark = pytest.mark.root

RING = 1 << 16  # 282 records
EVIL, SHOP = 290, 5
PORTS = {"evil": free_port(), "shop": free_port()}


def measure(session) -> dict[str, int]:
    """Measure a server of each namespace, of whose RPCs all are slow. Returns their target sets. Both are of this
    process, so their pod is one."""
    cgroup = find_root() / Path("/proc/self/cgroup").read_text().rpartition("0::/")[2].strip()
    targets = [of(name, "web", pods=(TargetPod("pod", (port,)),), thresholds=(1,)) for name, port in PORTS.items()]
    session.rules = compile_rules(plan_of(*targets), {"pod": [cgroup.stat().st_ino]}, session.rules)
    session.programs.apply(session.rules, idle_timeout_ns=2 * 10**9, own_tgid=0, owner_by_process=False)
    return {one.namespace: number for number, one in session.rules.sets.items()}


def turns(namespace: str, count: int) -> None:
    peers = Peers(PORTS[namespace])
    for _ in range(count):
        peers.client.sendall(b"x")
        peers.server.recv(1)
        peers.server.sendall(b"y")
        peers.client.recv(1)
    peers.close()


def test_who_fills_the_ring_with_slow_rpcs_leaves_room_for_those_of_others(make_stoppable) -> None:
    """The reader stands still for no longer than what the shares are made for, else it is tried again."""
    session, drainer = make_stoppable(RING)
    sets = measure(session)
    most_windows = RING // 2 // 232 // (2 * share_records(RING, len(PORTS)))
    for _ in range(20):
        before = {name: totals(session, number) for name, number in sets.items()}
        records, lost = len(settled(session)), session.programs.lost()
        drainer.stop()
        turns("evil", EVIL)
        turns("shop", SHOP)
        drainer.go_on()
        came = settled(session)[records:]
        ended_ns = np.sort(came["send_end_ns"].astype(np.int64))
        if (ended_ns[-1] - ended_ns[0] >> WINDOW_SHIFT) + 1 < most_windows:
            break
    else:
        raise AssertionError("this machine never made so many RPCs in as short a time")
    gained = {name: totals(session, number) - before[name] for name, number in sets.items()}
    refused = {reason: n - lost[reason] for reason, n in session.programs.lost().items() if n > lost[reason]}
    print(f"counted, without record: {gained}; lost {refused}")
    assert gained["shop"].tolist() == [SHOP, 0]
    counted, without = gained["evil"].tolist()
    assert counted == EVIL
    assert refused == {"throttled": without}
    assert without > EVIL - RING // 232
    of_shop = came["target_set"] == sets["shop"]
    assert (int(of_shop.sum()), int((~of_shop).sum())) == (SHOP, EVIL - without)


def settled(session) -> np.ndarray:
    """All records, once those have come that the ring took."""

    def taken() -> int:
        _, counts = session.programs.counts()
        return int(counts["classes"].sum() - counts["lost_records"].sum())

    wait_until(lambda: len(session.records()) >= taken(), "a record of each that the ring took")
    return session.records()


def totals(session, number: int) -> np.ndarray:
    """(Counted, without a record) of a target set."""
    keys, counts = session.programs.counts()
    mine = counts[keys["target_set"] == number]
    return np.array([mine["classes"].sum(), mine["lost_records"].sum()], np.int64)
