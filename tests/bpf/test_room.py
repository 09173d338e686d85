"""One namespace asks for more than the kernel's tables hold: its neighbour on the node is measured as before."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from latencyprobe.plan import TargetPod
from latencyprobe_agent.identity.cgroups import find_root
from latencyprobe_agent.measure.rules import compile_rules
from latencyprobe_agent.vocabulary.records import Role
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
