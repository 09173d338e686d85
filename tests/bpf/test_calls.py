"""What servers waited for, joined by thread from what the kernel recorded, beside the services' own logs."""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from latencyprobe.plan import Endpoint, NodePlan, SpanPolicy, Target, TargetPod
from latencyprobe.plan import Role as Perspective
from latencyprobe_agent.identity.cgroups import find_root
from latencyprobe_agent.measure.calls import Called, CallJoin
from latencyprobe_agent.measure.rules import compile_rules
from tests.support.waiting import wait_until
from tests.truth.services import Asked, Service, ask, chain, ports
from tests.truth.session import MS, Session

pytestmark = pytest.mark.root


def joined(session: Session, services: list[Service], clients: int, per_client: int) -> tuple[CallJoin, Called | None]:
    """What becomes of all halves once every connection has ended."""
    ask(services[0].port, per_client, clients)
    for service in services:
        service.close()
    halves, _ = session.pairs(session.records_of_ended())
    join = CallJoin()
    join.keep(halves, int(halves.end_ns.max()))
    return join, join.settle(int(halves.end_ns.max()), all_of_them=True)


def wrong(found: Called, service: Service) -> list[Asked]:
    """What a service's log tells otherwise: each of its joins must be a line of the log, and no line twice."""
    left = Counter(service.asked)
    odd = []
    for i, of in enumerate(found.of.tolist()):
        server, client = found.server.rec[of], found.client.rec[i]
        if server["local_port"] != service.port:
            continue
        told = Asked(
            int(server["peer_port"]),
            int(client["local_port"]),
            int(found.client.start_ns[i]),
            int(found.client.end_ns[i]),
        )
        lines = [
            line
            for line in left
            if line[:2] == told[:2] and line.begin_ns <= told.begin_ns and told.end_ns <= line.end_ns
        ]
        if not lines:
            odd.append(told)
        left -= Counter(lines[:1])
    return odd


@pytest.mark.parametrize("how", ["threads", "pool"])
def test_who_waited_for_whom_in_a_chain_of_three_is_what_they_log(session: Session, how: str) -> None:
    with chain((how, 0), (how, 1), ("threads", 2)) as services:
        session.measure(*ports(services))
        join, found = joined(session, services, clients=3, per_client=30)
    first, second, _ = services
    assert found is not None
    assert [90, 90] == [len(first.asked), len(second.asked)]
    assert [] == wrong(found, first) + wrong(found, second)
    assert Counter({first.port: 90, second.port: 90}) == Counter(found.server.rec["local_port"][found.of].tolist())
    assert join.outcomes == {**dict.fromkeys(join.outcomes, 0), "joined": 180}
    process_ns = found.server.stages[:, 2]
    assert (0 < found.new_ns).all()
    assert (found.new_ns <= process_ns[found.of]).all()


def test_of_a_thread_that_serves_all_at_a_time_only_what_lies_in_one_is_joined(session: Session) -> None:
    with chain(("async", 5), ("threads", 3)) as services:
        session.measure(*ports(services))
        join, found = joined(session, services, clients=4, per_client=20)
    (service, _) = services
    assert len(service.asked) == 80
    assert join.outcomes["ambiguous"] > 0
    assert join.outcomes["ambiguous"] + join.outcomes["joined"] + join.outcomes["no_exchange"] == 80
    assert found is None or wrong(found, service) == []


@pytest.fixture
def cgroups() -> Iterator[list[Path]]:
    """Two of our own, as pods have them."""
    home = find_root() / Path("/proc/self/cgroup").read_text().rpartition("0::/")[2].strip()
    folders = [home / f"lp-{os.getpid()}-{i}" for i in range(2)]
    for folder in folders:
        folder.mkdir()
    yield folders
    for folder in folders:
        wait_until(lambda folder=folder: not (folder / "cgroup.procs").read_text(), "nobody is in it")
        folder.rmdir()


def pod_target(name: str, role: Perspective, pod: str, port: int, callers: tuple[str, ...] = ()) -> Target:
    """A target of a LatencyProbe in a cluster."""
    return Target(
        *(f"shop/p/{name}", "shop", "p", "", name, role, (25 * MS,), 0, SpanPolicy(25 * MS, 0.0, 100)),
        pods=(TargetPod(pod, (port,)),),
        callers=callers,
        endpoints=(Endpoint("127.0.0.1", port),) if callers else (),
    )


@pytest.mark.parametrize("role", Perspective)
def test_a_pod_is_server_of_one_target_and_client_of_another_under_one_plan(
    session: Session, cgroups: list[Path], role: Perspective
) -> None:
    """The second target names the pod that calls, or the one that answers, and the first is among its callers."""
    with chain(("threads", 0), ("threads", 1), cgroups=cgroups) as services:
        front, database = services
        of_front = pod_target("front", Perspective.SERVER, "front", front.port)
        calls = (
            pod_target("database", role, "front", database.port)
            if role is Perspective.CLIENT
            else pod_target("database", role, "database", database.port, ("front",))
        )
        plan = NodePlan("n1", 1, "", (of_front, calls), ())
        inodes = {name: [folder.stat().st_ino] for name, folder in zip(("front", "database"), cgroups, strict=True)}
        session.programs.apply(
            compile_rules(plan, inodes), idle_timeout_ns=2000 * MS, own_tgid=0, owner_by_process=False
        )
        join, found = joined(session, services, clients=2, per_client=10)
    assert found is not None
    assert [] == wrong(found, front)
    assert (len(found), join.outcomes["joined"]) == (20, 20)


def test_where_another_thread_asks_than_serves_nothing_is_joined(session: Session) -> None:
    with chain(("handed", 0), ("threads", 1)) as services:
        session.measure(*ports(services))
        join, found = joined(session, services, clients=1, per_client=20)
    assert len(services[0].asked) == 20
    assert found is None
    assert join.outcomes["no_exchange"] == 20
