"""Managed fields of thousands of levels on one object hide no other."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from latencyprobe.api import API_VERSION
from latencyprobe_operator.cluster.api import Api
from latencyprobe_operator.cluster.calls import Cluster
from latencyprobe_operator.cluster.informer import Informer
from latencyprobe_operator.cluster.nesting import API_LEVELS, LEVELS, decoded, shallow
from latencyprobe_operator.cluster.state import ClusterState
from tests.support.api_server import ApiServer, api_server, run_until_closed
from tests.support.waiting import until

PODS, PROBES = "/api/v1/namespaces/default/pods", f"/apis/{API_VERSION}/namespaces/default/latencyprobes"
SPECS: dict[str, Any] = {PODS: {"containers": [{"name": "a", "image": "a"}]}, PROBES: {"targets": [{"name": "t"}]}}


def nested(levels: int) -> str:
    return '{"f:a":' * levels + "{}" + "}" * levels


def test_what_is_not_deep_stays_as_it_is_whatever_its_strings_hold() -> None:
    data = json.dumps({"a": ['"]}\\', {"b": "[[[{", 'c\\": [': [1, None]}], "d": {}}).encode()
    assert shallow(data) == data
    whole = ('{"a":' * (LEVELS - 1) + "[]" + "}" * (LEVELS - 1)).encode()
    assert shallow(whole) == whole


def test_null_stands_for_what_is_too_deep_and_all_else_is_read() -> None:
    data = f'{{"before": [1], "deep": [{nested(20_000)}, 2], "after": "}}"}}'.encode()
    found = decoded(data)
    assert (found["before"], found["deep"][1], found["after"]) == ([1], 2, "}")
    assert nested(LEVELS - 3).replace("{}", '{"f:a":null}') == json.dumps(found["deep"][0]).replace(" ", "")


def test_what_is_no_json_is_told_so_however_deep() -> None:
    with pytest.raises(msgspec.DecodeError):
        decoded(b"[" * 20_000)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with api_server(tmp_path_factory.mktemp("api")) as it:
        yield it


def create(server: ApiServer, path: str, name: str, levels: int = 0) -> None:
    kind = {PODS: ("v1", "Pod"), PROBES: (API_VERSION, "LatencyProbe")}[path]
    field = {"manager": "x", "operation": "Update", "apiVersion": kind[0], "fieldsType": "FieldsV1", "fieldsV1": "HERE"}
    metadata = {"name": name, "managedFields": [field]}
    document = json.dumps({"apiVersion": kind[0], "kind": kind[1], "metadata": metadata, "spec": SPECS[path]})
    status, _ = server.answer("POST", path, document.replace('"HERE"', nested(levels)).encode())
    assert status == 201


@pytest.mark.cluster
def test_deep_managed_fields_of_one_object_hide_no_other_from_us(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig))
    levels = API_LEVELS - 100
    for path in (PODS, PROBES):
        create(server, path, "deep", levels)
        create(server, path, "plain")

    async def scene() -> None:
        state = ClusterState()
        async with await Api.connect() as api:
            informer = Informer(api, "pods", state, lambda: None)
            running = asyncio.create_task(informer.run())
            await asyncio.wait_for(informer.synced.wait(), 30)
            create(server, PODS, "deep-later", levels)
            create(server, PODS, "plain-later")
            names = lambda: {pod.name for pod in state.pods("default")}  # noqa: E731 - asked again and again
            await until(lambda: len(names()) == 4, "all pods are known", 30, seen=names)
            running.cancel()
            cluster = Cluster(api)
            assert {one["metadata"]["name"] async for one in cluster.probes()} == {"deep", "plain"}

    run_until_closed(scene())
    listed = {path: server.answer("GET", path)[1] for path in (PODS, PROBES)}
    assert all(len(found) > len(nested(levels)) for found in listed.values()), "the API server keeps them"
    program = "import json, sys; from latencyprobe_operator.commands import read_deep_json as ready"
    subprocess.run(
        [sys.executable, "-c", f"{program}; ready(); json.load(sys.stdin)"], input=listed[PROBES], check=True
    )
