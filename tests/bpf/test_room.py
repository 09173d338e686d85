"""One namespace asks for more than the kernel's tables hold: its neighbour on the node is measured as before."""

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from latencyprobe.plan import TargetPod
from latencyprobe_agent.identity.cgroups import find_root
from latencyprobe_agent.measure.rules import compile_rules
from latencyprobe_agent.vocabulary.records import COUNTS_SLOT, Role
from tests.support.plans import PODS, greedy, of, plan_of
from tests.support.ports import free_port
from tests.truth import workload

pytestmark = pytest.mark.root

PORT = free_port()
RPCS = 500


@pytest.mark.parametrize("before", [0, 20], ids=["at once", "while it measures"])
def test_a_neighbour_that_asks_for_too_much_takes_nothing_from_a_namespace(session, tmp_path, before: int):
    root = find_root()
    cgroup = root / Path("/proc/self/cgroup").read_text().rpartition("0::/")[2].strip()
    shop = of("shop", "cart", pods=(TargetPod("shop", (PORT,)),), thresholds=(10**12,))
    shop = replace(shop, spans=replace(shop.spans, slower_than_ns=10**12))
    cgroups = {"shop": [cgroup.stat().st_ino]} | {uid: [2**40 + i] for i, uid in enumerate(PODS)}
    for targets in ((shop, *greedy()[-before:]), (shop, *greedy())):
        session.rules = compile_rules(plan_of(*targets), cgroups, session.rules)
        session.programs.apply(session.rules, idle_timeout_ns=2 * 10**9, own_tgid=0, owner_by_process=False)
    assert ["greedy/probe/any"] == list(session.rules.refused)

    workload.run_both(tmp_path / "log", address=f"127.0.0.1:{PORT}", total=RPCS, threads=2, seed=1)
    records = session.records_of_ended()
    assert RPCS == int((records["role"] == Role.SERVER).sum())
    sets = [session.rules.sets[index] for index in set(records["target_set"].tolist())]
    assert [("shop/probe/cart",)] == [one.targets for one in sets]


def test_a_neighbour_that_fills_the_table_of_counts_takes_no_count_from_a_namespace(make_session, tmp_path):
    """What finds no room of its own counts under owner 0, whose room is kept, and some for targets to come."""
    session = make_session(entries={"counts": 256})
    root = find_root()
    cgroup = root / Path("/proc/self/cgroup").read_text().rpartition("0::/")[2].strip()
    evil, shop = (of(name, "web", pods=(TargetPod(name, (PORT,)),), thresholds=(10**12,)) for name in ("evil", "shop"))
    table, owner = session.programs.map("counts"), 0
    for targets in ((evil,), (evil, shop)):
        cgroups = {"evil": [2**40], "shop": [cgroup.stat().st_ino]}
        session.rules = compile_rules(plan_of(*targets), cgroups, session.rules)
        session.programs.apply(session.rules, idle_timeout_ns=2 * 10**9, own_tgid=0, owner_by_process=False)
        while table.add(
            np.array(((2**40 + owner, 1, Role.SERVER), 0, 0), COUNTS_SLOT).tobytes(), bytes(table.value_size)
        ):
            owner += 1

    workload.run_both(tmp_path / "log", address=f"127.0.0.1:{PORT}", total=RPCS, threads=2, seed=1)
    assert RPCS == int((session.records_of_ended()["role"] == Role.SERVER).sum())
    keys, totals = session.programs.counts()
    (number,) = (number for number, one in session.rules.sets.items() if one.targets == (shop.id,))
    of_shop = keys["target_set"] == number
    assert {0} == set(keys["owner"][of_shop].tolist())
    assert RPCS == int(totals["classes"][of_shop].sum())
    assert {} == session.programs.unaccounted()
    assert 0 == session.programs.lost()["counts"]
