"""The directory over real TLS: plans, statuses, identities and SLI counts."""

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from latencyprobe.errors import DirectoryError
from latencyprobe.plan import Ask, RemoteJoinAnswer, RemoteJoinMessage
from latencyprobe.plan_stream import PlanLine
from latencyprobe.sli import SliBatch
from latencyprobe_agent.directory.client import Directory as AgentsClient
from latencyprobe_operator.directory import server
from tests.latencyprobe_operator.conftest import agent_status
from tests.latencyprobe_operator.directory_world import HALF, Play, World


async def read_line(stream: aiohttp.ClientResponse) -> PlanLine:
    return msgspec.json.decode(await stream.content.readuntil(b"\n"), type=PlanLine)


def stream_of(it: World, node: str) -> Any:
    return it.client.get(f"{it.url}/v1/nodes/{node}/plan", headers={"Authorization": f"Bearer token-{node}"})


def test_closing_ends_the_streams_in_an_orderly_way_and_refuses_agents(play: Play) -> None:
    async def scene(it: World) -> None:
        async with stream_of(it, "n1") as one, stream_of(it, "n2") as other:
            for stream in (one, other):
                await read_line(stream)
            it.directory.close()
            assert [b"", b""] == [await stream.content.read() for stream in (one, other)]
        assert not it.directory.streams.of
        assert 503 == (await it.call("GET", "/v1/nodes/n1/plan"))[0]

    play(scene)


def test_plan_comes_at_once_and_again_after_a_change(play: Play, make: Any) -> None:
    async def scene(it: World) -> None:
        async with stream_of(it, "n1") as stream:
            first = await read_line(stream)
            it.state.put("pods", make.pod("cart-2"))
            it.plan(make.probe())
            second = await read_line(stream)
        assert first.plan is not None
        assert second.plan is not None
        assert first.plan.pair_key == b"k" * 32
        assert [len(p.targets[0].pods) for p in (first.plan, second.plan)] == [1, 2]
        assert second.plan.generation > first.plan.generation

    play(scene)


def test_deleted_probe_empties_the_streamed_plan(play: Play) -> None:
    async def scene(it: World) -> None:
        async with stream_of(it, "n1") as stream:
            await read_line(stream)
            it.plan()
            line = await read_line(stream)
        assert line.plan is not None
        assert line.plan.targets == ()

    play(scene)


def test_directory_that_is_not_open_answers_503_but_is_healthy(play: Play) -> None:
    async def scene(it: World) -> None:
        it.directory.close()
        statuses = [(await it.call("GET", path))[0] for path in ("/v1/nodes/n1/plan", "/readyz", "/healthz")]
        assert statuses == [503, 503, 200]

    play(scene)


def test_outage_of_the_api_server_ends_neither_life_nor_readiness_and_is_told_with_its_age(play: Play) -> None:
    async def scene(it: World) -> None:
        it.age_s = 3_600
        assert await it.call("GET", "/healthz", token="") == (200, b"ok")
        text = b"ok, but the API server has been silent for 3600 s"
        assert await it.call("GET", "/readyz", token="") == (200, text)
        async with stream_of(it, "n1") as stream:
            line = await read_line(stream)
            assert (line.unconfirmed_s, line.plan is not None) == (3_600, True)
            it.age_s = 0
            it.directory.streams.publish({"n1"})
            assert (await read_line(stream)).unconfirmed_s == 0

    play(scene)


def test_status_is_taken_for_the_callers_node(play: Play, make: Any) -> None:
    async def scene(it: World) -> None:
        generation = it.planner.plan_of("n1").generation
        assert (await it.call("POST", "/v1/nodes/n1/status", make.status(generation)))[0] == 204
        assert it.agents.applied["n1"] is it.planner.plan_of("n1")

    play(scene)


def test_what_a_newer_agent_says_more_is_left_out(play: Play, make: Any) -> None:
    async def scene(it: World) -> None:
        status = msgspec.to_builtins(agent_status(it.planner.plan_of("n1").generation)) | {"mood": "good"}
        status["targets"][0]["mood"] = {"good": 1}
        assert (await it.call("POST", "/v1/nodes/n1/status", status))[0] == 204
        assert it.agents.applied["n1"] is it.planner.plan_of("n1")
        batch = {"instance": "i", "sequence": 0, "rows": [], "mood": 1}
        assert (await it.call("POST", "/v1/nodes/n1/sli", batch, version="2"))[0] == 200

    play(scene)


def test_a_plan_goes_out_bit_by_bit_as_tls_keeps_room_for_the_largest_write(play: Play, make: Any) -> None:
    async def scene(it: World) -> None:
        for number in range(100):
            it.state.put("pods", make.pod(f"cart-{number}"))
        it.plan(make.probe())
        async with stream_of(it, "n1") as stream:
            size, sizes = 0, list[int]()
            async for data, ends in stream.content.iter_chunks():
                size += len(data)
                if ends:
                    sizes.append(size)
                    size = 0
                if data.endswith(b"\n"):
                    break
        assert len(sizes) > 3
        assert max(sizes) <= server.PIECE

    play(scene)


def test_two_agents_join_a_remote_half_through_their_plan_streams(play: Play, tls_dir: Path, tmp_path: Path) -> None:
    """The client's agent on n2 dialled the Service; its server ran on n1."""

    async def scene(it: World) -> None:
        agents = {}
        for node in ("n1", "n2"):
            (tmp_path / node).write_text(f"token-{node}")
            agents[node] = AgentsClient(it.url, node, token_file=tmp_path / node, ca_file=tls_dir / "tls.crt")
        streams = {node: agent.plans() for node, agent in agents.items()}
        for stream in streams.values():
            assert (await asyncio.to_thread(next, stream)).remote_join is None

        ask = Ask((HALF.key,), "10.96.0.7", spans=True)
        asked = await asyncio.to_thread(agents["n2"].remote_join, RemoteJoinMessage((ask,)))
        question = await asyncio.to_thread(next, streams["n1"])
        given = await asyncio.to_thread(agents["n1"].remote_join, RemoteJoinMessage(halves=(HALF,)))
        delivered = await asyncio.to_thread(next, streams["n2"])

        assert asked == given == RemoteJoinAnswer()
        assert question == PlanLine(remote_join=RemoteJoinMessage((Ask((HALF.key,), spans=True),)))
        assert delivered == PlanLine(remote_join=RemoteJoinMessage(halves=(HALF,)))
        assert it.directory.streams.switchboard.counts == {"asked": 1, "answered": 1}

    play(scene)


def test_half_of_a_node_without_an_agent_is_refused_at_once(play: Play) -> None:
    async def scene(it: World) -> None:
        status, body = await it.call(
            "POST", "/v1/remote-join", RemoteJoinMessage((Ask((HALF.key,), "10.96.0.7"),)), "token-n2"
        )
        assert (status, msgspec.json.decode(body)) == (200, {"refused": {HALF.key: "no_agent"}})

    play(scene)


def test_agents_own_client_speaks_the_same_wire(play: Play, make: Any, tls_dir: Path, tmp_path: Path) -> None:
    async def scene(it: World) -> None:
        (tmp_path / "token").write_text("token-n2\n")
        files = {"token_file": tmp_path / "token", "ca_file": tls_dir / "tls.crt"}
        mine, foreign = (AgentsClient(it.url, node, **files) for node in ("n2", "n1"))
        plan = (await asyncio.to_thread(next, mine.plans())).plan
        assert plan is not None
        assert plan.targets[0].callers == ("uid-shop-web-1",)
        await asyncio.to_thread(mine.status, make.status(plan.generation))
        assert it.agents.applied["n2"] is it.planner.plan_of("n2")
        answer = await asyncio.to_thread(mine.identities, ("10.96.0.7",))
        assert answer.identities[0].service == "cart"
        accepted = await asyncio.to_thread(mine.sli, SliBatch("i", 0, ()))
        gap = await asyncio.to_thread(mine.sli, SliBatch("i", 5, ()))
        assert (accepted.expected, gap.expected) == (1, 1)
        with pytest.raises(DirectoryError, match="403"):
            await asyncio.to_thread(foreign.status, make.status(plan.generation))

    play(scene)
