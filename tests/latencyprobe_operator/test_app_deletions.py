"""app.py while LatencyProbe, namespace, CRD and node are deleted, in any order, before its eyes or while it is away."""

import asyncio
import os
import random
from copy import deepcopy
from itertools import permutations
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from latencyprobe_operator.cluster.decoding import MEASURE_LABEL
from tests.latencyprobe_operator.operator_process import CART, plan, played, process, trusting
from tests.latencyprobe_operator.played_api import PlayedApi
from tests.latencyprobe_operator.played_time import Clock
from tests.support.ports import free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

WHAT = ("latencyprobe", "namespace", "crd", "node")
ORDERS = int(os.environ.get("ORDERS", "4"))  # at random; 24 are all
MOST_S = 60.0
COME_S = 90.0  # the whole list is looked at once a minute


class Tenant:
    """The namespace `shop` with a LatencyProbe and a target pod on each of two nodes: made, and deleted bit by bit."""

    def __init__(self, api: PlayedApi, document: dict[str, Any]) -> None:
        self._api, self._document = api, document
        self._turn = 0

    def make(self) -> None:
        self._turn += 1
        self._api.without_crd = False
        self._api.put("namespaces", {"metadata": {"name": "shop", "uid": f"shop-{self._turn}"}})
        self._api.put("nodes", {"metadata": {"name": "n1", "uid": f"n1-{self._turn}"}, "status": {"addresses": []}})
        for number in (1, 2):
            pod = deepcopy(CART)
            pod["metadata"] |= {"name": f"cart-{number}", "uid": f"u{self._turn}-{number}"}
            pod["spec"]["nodeName"] = f"n{number}"
            self._api.put("pods", pod)
        metadata = self._document["metadata"] | {"uid": f"probe-{self._turn}"}
        self._api.put("latencyprobes", self._document | {"metadata": metadata})

    def delete(self, what: str) -> None:
        """Delete one, with all that Kubernetes deletes with it."""
        if what == "node":
            self._drop("nodes", "", "n1")
            self._drop("pods", "shop", "cart-1")
            return
        self._drop("latencyprobes", "shop", "checkout")
        if what == "crd":
            self._api.without_crd = True
        if what == "namespace":
            for number in (1, 2):
                self._drop("pods", "shop", f"cart-{number}")
            self._drop("namespaces", "", "shop")

    def _drop(self, *key: str) -> None:
        if key in self._api._objects:
            self._api.drop(*key)


def labelled(api: PlayedApi) -> set[str]:
    nodes = {name: node for (kind, _, name), node in api._objects.items() if kind == "nodes"}
    return {name for name, node in nodes.items() if MEASURE_LABEL in node["metadata"].get("labels", {})}


def orders() -> list[tuple[str, ...]]:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    return random.Random(seed).sample([*permutations(WHAT)], ORDERS)


def test_whatever_is_deleted_first_labels_and_plans_go_and_nothing_is_written_any_more(
    make: Any, tmp_path: Path, tls_dir: Path
) -> None:
    clock = Clock()
    api = PlayedApi(clock)
    api.put("nodes", {"metadata": {"name": "n2", "uid": "n2"}, "status": {"addresses": []}})
    tenant = Tenant(api, make.document())

    async def delete(session: aiohttp.ClientSession, url: str, order: tuple[str, ...]) -> None:
        tenant.make()
        await clock.until(lambda: labelled(api) == {"n1", "n2"}, f"before {order} both nodes measure", COME_S)
        for what in order:
            tenant.delete(what)
            await clock.pass_s(random.uniform(0, 3))
        took_s = await clock.until(lambda: not labelled(api), f"after {order} no node measures", MOST_S)
        assert (await clock.while_it_passes(plan(session, url)))["targets"] == []
        print(f"{' '.join(order)}: no label after {took_s} s")
        written = len(api.audit)
        await clock.pass_s(70)
        assert [] == api.audit[written:], "who is gone is not written to"

    async def scene() -> None:
        listen = f"127.0.0.1:{free_port()}"
        async with (
            played(api) as server,
            trusting(tls_dir) as session,
            process(tmp_path, tls_dir, server, listen, *clock.new(tmp_path / "clock")) as running,
        ):
            for order in orders():
                await delete(session, f"https://{listen}", order)
            assert running.returncode is None

    try:
        asyncio.run(scene())
    finally:
        print((tmp_path / "log").read_text()[-5000:])
    assert not [write for write in api.audit if "finalizers" in str(write.body)]


@pytest.mark.parametrize("what", WHAT[:3])
def test_what_was_deleted_while_the_operator_was_away_is_cleaned_up_at_its_return(
    make: Any, tmp_path: Path, tls_dir: Path, what: str
) -> None:
    clock = Clock()
    api = PlayedApi(clock)
    tenant = Tenant(api, make.document())
    tenant.make()
    for name in ("n1", "n2"):
        labels = {MEASURE_LABEL: "true"}
        api.put("nodes", {"metadata": {"name": name, "uid": name, "labels": labels}, "status": {"addresses": []}})
    tenant.delete(what)

    async def scene() -> None:
        async with played(api) as server:
            listen = f"127.0.0.1:{free_port()}"
            async with process(tmp_path, tls_dir, server, listen, *clock.new(tmp_path / "clock")):
                assert labelled(api) == {"n1", "n2"}
                took_s = await clock.until(lambda: not labelled(api), "labels are taken away", MOST_S)
                print(f"{what}: no label {took_s} s after the operator's start")

    try:
        asyncio.run(scene())
    finally:
        print((tmp_path / "log").read_text()[-5000:])
