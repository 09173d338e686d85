"""The directory over real TLS: plans, statuses, identities, SLI counts, and everything that is refused."""

import asyncio
import io
import json
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from latencyprobe.errors import DirectoryError
from latencyprobe.plan import Ask, IdentityAnswer, PlanLine, Recall, RecallAnswer, ServerHalf
from latencyprobe.sli import Coverage, SliBatch, SliRow
from latencyprobe.slo.objective import objectives
from latencyprobe.store import SqliteStore
from latencyprobe_agent.identity.directory import Directory as AgentsClient
from latencyprobe_operator import reports
from latencyprobe_operator.agents import Agents
from latencyprobe_operator.books import Books
from latencyprobe_operator.cluster import Reviewed
from latencyprobe_operator.directory import server as server_
from latencyprobe_operator.directory.auth import NODE_CLAIM, Authenticator, FakeReviewer
from latencyprobe_operator.directory.ingest import Ingest
from latencyprobe_operator.directory.server import Directory
from latencyprobe_operator.directory.tls import Certificate
from latencyprobe_operator.planner import Planner

AGENT = "system:serviceaccount:agents:agent"


HALF = ServerHalf("ab" * 16, (1, 2, 3, 4), service="cart", namespace="shop", pod="cart-1")


class World:
    """A directory with its parts, and a client that trusts its certificate."""

    def __init__(self, make: Any, books: Books) -> None:
        cart = make.pod("cart-1")
        self.state = make.state(cart, make.pod("web-1", node="n2"), make.service("cart"), make.slice_of("cart", cart))
        self.planner, self.agents, self.reviewer = Planner(1000, b"k" * 32), Agents(), FakeReviewer({})
        for node in ("n1", "n2"):
            self.reviewer.users[f"token-{node}"] = Reviewed(AGENT, extra={NODE_CLAIM: [node]})
        self.reviewer.users["token-stranger"] = Reviewed("system:serviceaccount:shop:default")
        self.books, self.ingest = books, Ingest(books, frozenset)
        auth = Authenticator(self.reviewer, "agents", "agent", lambda *_: "")
        self.deaf: list[str] = []
        self.directory = Directory(self.planner, self.agents, self.state, self.ingest, auth, deaf=lambda: self.deaf)
        self.plan(make.probe())
        self.directory.open()

    def plan(self, *probes: Any) -> None:
        wanted = {(p.namespace, p.name): p for p in probes}
        changed = self.planner.update(wanted, self.state, self.state.take_changes())
        self.agents.planned(changed, self.planner.nodes, 0.0)
        for node in changed:
            self.ingest.planned(self.planner.plan_of(node))
        self.directory.published(changed)

    async def call(self, method: str, path: str, body: Any = None, token: str = "token-n1") -> tuple[int, bytes]:
        data = body if isinstance(body, bytes | io.BytesIO) or body is None else msgspec.json.encode(body)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with self.client.request(method, self.url + path, data=data, headers=headers) as answer:
            return answer.status, await answer.read()

    client: aiohttp.ClientSession
    url: str


@asynccontextmanager
async def world(make: Any, tls_dir: Path, store: Path) -> AsyncIterator[World]:
    async with Books(lambda: SqliteStore(store)) as books:
        it = World(make, books)
        runner = web.AppRunner(it.directory.app(), shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=Certificate(tls_dir).context).start()
        it.url = f"https://127.0.0.1:{runner.addresses[0][1]}"
        trust = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=str(tls_dir / "tls.crt")))
        async with aiohttp.ClientSession(connector=trust) as it.client:
            yield it
        await runner.cleanup()


Play = Callable[[Callable[[World], Awaitable[None]]], None]


@pytest.fixture
def play(make: Any, tls_dir: Path, tmp_path: Path) -> Play:
    def run(scene: Callable[[World], Awaitable[None]]) -> None:
        async def whole() -> None:
            async with world(make, tls_dir, tmp_path / "sli.db") as it:
                await scene(it)

        asyncio.run(whole())

    return run


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
        assert not it.directory.streams
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


def test_quiet_stream_has_heartbeats_without_a_plan(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_, "HEARTBEAT_S", 0.02)

    async def scene(it: World) -> None:
        async with stream_of(it, "n1") as stream:
            lines = [await read_line(stream) for _ in range(3)]
        assert [line.plan is None for line in lines] == [False, True, True]

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


def test_newer_stream_of_a_node_ends_the_older_one(play: Play) -> None:
    async def scene(it: World) -> None:
        async with stream_of(it, "n1") as older, stream_of(it, "n1") as newer:
            await read_line(older)
            await read_line(newer)
            assert await older.content.read() == b""
            assert list(it.directory.streams) == ["n1"]

    play(scene)


@pytest.mark.parametrize(
    ("token", "path", "status"),
    [
        ("", "/v1/nodes/n1/plan", 401),
        ("token-wrong", "/v1/nodes/n1/plan", 401),
        ("token-stranger", "/v1/nodes/n1/plan", 403),
        ("token-n2", "/v1/nodes/n1/plan", 403),
        ("token-n1", "/v1/nothing", 404),
        ("", "/metrics", 401),
        ("token-n1", "/metrics", 401),
    ],
)
def test_callers_without_the_right_are_refused(play: Play, token: str, path: str, status: int) -> None:
    async def scene(it: World) -> None:
        assert (await it.call("GET", path, token=token))[0] == status

    play(scene)


def test_refused_agent_of_a_wanted_node_is_remembered_for_its_status(play: Play) -> None:
    async def scene(it: World) -> None:
        await it.call("GET", "/v1/nodes/n1/plan", token="token-n2")
        assert "n2" in it.agents.refusals["n1"]

    play(scene)


def test_directory_that_is_not_open_answers_503_but_is_healthy(play: Play) -> None:
    async def scene(it: World) -> None:
        it.directory.is_open = False
        statuses = [(await it.call("GET", path))[0] for path in ("/v1/nodes/n1/plan", "/readyz", "/healthz")]
        assert statuses == [503, 503, 200]

    play(scene)


def test_health_fails_when_a_watch_is_deaf(play: Play) -> None:
    async def scene(it: World) -> None:
        it.deaf.append("pods")
        assert await it.call("GET", "/healthz", token="") == (503, b"deaf: pods")

    play(scene)


def test_status_is_taken_for_the_callers_node(play: Play, make: Any) -> None:
    async def scene(it: World) -> None:
        generation = it.planner.plan_of("n1").generation
        assert (await it.call("POST", "/v1/nodes/n1/status", make.status(generation)))[0] == 204
        assert it.agents.applied["n1"] is it.planner.plan_of("n1")

    play(scene)


@pytest.mark.parametrize(
    ("path", "body", "named"),
    [
        ("/v1/nodes/n1/status", b'{"instance": 5}', b"$.instance"),
        ("/v1/nodes/n1/status", b"{", b"truncated"),
        ("/v1/nodes/n1/sli", b'{"instance":"i","sequence":0,"rows":[{"good":"x"}]}', b"$.rows[0].good"),
        ("/v1/nodes/n1/sli", b'{"instance":"i","sequence":0,"rows":[],"more":1}', b"more"),
        ("/v1/nodes/n1/sli", b'{"instance":"i","sequence":-1,"rows":[]}', b"$.sequence"),
        ("/v1/nodes/n1/sli", b'{"instance":"i","sequence":1' + b"0" * 25 + b',"rows":[]}', b"$.sequence"),
        ("/v1/nodes/n1/sli", b'{"instance":"\xff","sequence":0,"rows":[]}', b"utf-8"),
        ("/v1/identities", b'{"addresses":[1]}', b"$.addresses[0]"),
        ("/v1/recall", b'{"asks":[{"keys":["../x"],"address":"10.0.0.1"}]}', b"$.asks[0].keys[0]"),
        ("/v1/recall", b'{"halves":[{"key":"%s","stages_ns":[1,-2,3,4]}]}' % (b"a" * 32), b"$.halves[0].stages_ns[1]"),
        ("/v1/identities", b'{"addresses":' + b"[" * 50_000, b"$.addresses[0]"),
    ],
)
def test_bad_document_gets_400_with_the_fields_path(play: Play, path: str, body: bytes, named: bytes) -> None:
    async def scene(it: World) -> None:
        status, said = await it.call("POST", path, body)
        assert status == 400
        assert named in said
        assert it.agents.of == {}

    play(scene)


def test_document_that_is_too_large_gets_413(play: Play) -> None:
    async def scene(it: World) -> None:
        assert (await it.call("POST", "/v1/nodes/n1/status", b" " * (300 << 10)))[0] == 413
        assert (await it.call("POST", "/v1/nodes/n1/sli", io.BytesIO(b" " * (5 << 20))))[0] == 413

    play(scene)


def test_too_many_addresses_are_refused(play: Play) -> None:
    async def scene(it: World) -> None:
        assert (await it.call("POST", "/v1/identities", {"addresses": ["10.0.0.1"] * 1001}))[0] == 400

    play(scene)


@pytest.mark.parametrize("recall", [Recall((Ask(("a" * 32,) * 1001),)), Recall(halves=(HALF,) * 501)])
def test_too_much_recall_is_refused(play: Play, recall: Recall) -> None:
    async def scene(it: World) -> None:
        assert (await it.call("POST", "/v1/recall", recall))[0] == 400

    play(scene)


def test_recall_needs_an_agents_token(play: Play) -> None:
    async def scene(it: World) -> None:
        assert [(await it.call("POST", "/v1/recall", Recall(), t))[0] for t in ("", "token-stranger")] == [401, 403]

    play(scene)


def test_two_agents_recall_a_half_through_their_plan_streams(play: Play, tls_dir: Path, tmp_path: Path) -> None:
    """The client's agent on n2 dialled the Service; its server ran on n1."""

    async def scene(it: World) -> None:
        agents = {}
        for node in ("n1", "n2"):
            (tmp_path / node).write_text(f"token-{node}")
            agents[node] = AgentsClient(it.url, node, token_file=tmp_path / node, ca_file=tls_dir / "tls.crt")
        streams = {node: agent.plans() for node, agent in agents.items()}
        for stream in streams.values():
            assert (await asyncio.to_thread(next, stream)).recall is None

        ask = Ask((HALF.key,), "10.96.0.7", spans=True)
        asked = await asyncio.to_thread(agents["n2"].recall, Recall((ask,)))
        wanted = await asyncio.to_thread(next, streams["n1"])
        given = await asyncio.to_thread(agents["n1"].recall, Recall(halves=(HALF,)))
        told = await asyncio.to_thread(next, streams["n2"])

        assert asked == given == RecallAnswer()
        assert wanted == PlanLine(recall=Recall((Ask((HALF.key,), spans=True),)))
        assert told == PlanLine(recall=Recall(halves=(HALF,)))
        assert it.directory.switchboard.counts == {"asked": 1, "answered": 1}

    play(scene)


def test_half_of_a_node_without_an_agent_is_refused_at_once(play: Play) -> None:
    async def scene(it: World) -> None:
        status, body = await it.call("POST", "/v1/recall", Recall((Ask((HALF.key,), "10.96.0.7"),)), "token-n2")
        assert (status, msgspec.json.decode(body)) == (200, {"refused": {HALF.key: "no_agent"}})

    play(scene)


def test_agent_that_asks_too_often_is_told_to_slow_down(play: Play) -> None:
    async def scene(it: World) -> None:
        statuses = [(await it.call("POST", "/v1/identities", {"addresses": []}))[0] for _ in range(150)]
        assert set(statuses) == {200, 429}
        assert (await it.call("POST", "/v1/identities", {"addresses": []}, token="token-n2"))[0] == 200

    play(scene)


def test_identities_are_short_lived_until_the_callers_agent_has_applied_its_plan(play: Play, make: Any) -> None:
    async def scene(it: World) -> None:
        (web_address,) = next(p.addresses for p in it.state.pods("shop") if p.name == "web-1")
        body = {"addresses": [web_address, "192.0.2.9"]}

        async def ask() -> IdentityAnswer:
            return msgspec.json.decode((await it.call("POST", "/v1/identities", body))[1], type=IdentityAnswer)

        before = await ask()
        status = make.status(it.planner.plan_of("n2").generation)
        await it.call("POST", "/v1/nodes/n2/status", status, token="token-n2")
        after = await ask()
        assert (before.identities[0].measured, before.valid_s) == ((), server_.UNSETTLED_VALID_S)
        assert (after.identities[0].measured, after.valid_s) == (("shop/checkout/cart",), server_.VALID_S)
        assert after.identities[1].pod == ""
        assert after.generation == it.planner.plan_of("n1").generation

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


TWO = [{"name": name, "target": "cart", "threshold": "25ms", "goal": "99"} for name in ("fast", "other")]
FORGED: dict[str, Any] = {"good": 10**18, "histogram": {40_000: 10**18}}


def row_of(probe: Any, name: str, **fields: Any) -> SliRow:
    key = next(o.key for o in objectives(probe) if o.key.objective == name)
    counts: dict[str, Any] = {"good": 200, "histogram": {-200: 200}, "coverage": Coverage(seen=200, measured_ms=5000)}
    return SliRow(*key, minute=int(time.time()) // 60 * 60, **(counts | fields))


async def evaluated(it: World, probe: Any) -> dict[str, dict[str, Any]]:
    found = await it.books.run(reports.evaluate, it.books.store, [probe], int(time.time()), {})
    return {result["objective"]: result for result in found["shop"]["results"]}


def test_forged_row_is_dropped_and_counted_and_takes_nothing_from_the_others(play: Play, make: Any) -> None:
    async def scene(it: World) -> None:
        probe = make.probe(objectives=TWO)
        it.plan(probe)
        rows = (row_of(probe, "fast", **FORGED), row_of(probe, "fast"), row_of(probe, "other"))
        status, body = await it.call("POST", "/v1/nodes/n1/sli", SliBatch("i", 0, rows))
        assert (status, msgspec.json.decode(body)) == (200, {"expected": 1})
        found = await evaluated(it, probe)
        assert {name: (r["state"], r["events"]) for name, r in found.items()} == {
            "fast": ("Met", 200),
            "other": ("Met", 200),
        }
        assert (it.ingest.accepted, it.ingest.dropped) == (2, {"impossible_good": 1})

    play(scene)


def test_forged_row_that_an_older_version_stored_makes_its_own_objective_incomplete(play: Play, make: Any) -> None:
    async def scene(it: World) -> None:
        probe = make.probe(objectives=TWO)
        it.plan(probe)
        await it.books.run(it.books.store.add, [row_of(probe, "fast", **FORGED)])
        batch = SliBatch("i", 0, (row_of(probe, "fast"), row_of(probe, "other")))
        assert (await it.call("POST", "/v1/nodes/n1/sli", batch))[0] == 200
        found = await evaluated(it, probe)
        assert {name: (r["state"], r["events"]) for name, r in found.items()} == {
            "fast": ("Incomplete", 0),
            "other": ("Met", 200),
        }
        assert "its counts are broken (good is 1000000000000000200, which cannot be)" in found["fast"]["reason"]
        assert "reason" not in found["other"]

    play(scene)


wild = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**29), 10**29) | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=9,
)
FIELDS = [field.name for field in msgspec.structs.fields(SliRow)]


def test_nothing_that_is_posted_ends_the_directory_or_the_evaluation(
    play: Play, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_.Bucket, "take", lambda _: True)
    probe = make.probe(objectives=TWO)

    async def scene(it: World) -> None:
        it.plan(probe)
        loop, instances = asyncio.get_running_loop(), map(str, range(1 << 20))
        fields = st.dictionaries(st.sampled_from(FIELDS), wild, max_size=3)
        number = st.integers(-(10**29), 10**29) | st.integers(-200, 1 << 20)
        sums = st.dictionaries(st.text(max_size=9) | number.map(str), number)
        counts = st.fixed_dictionaries({}, optional=dict.fromkeys(["good", "bad", "minute"], number))
        sparse = st.fixed_dictionaries({}, optional=dict.fromkeys(["histogram", "stage_ns", "dominant", "peers"], sums))

        @given(wild | st.lists(fields | counts | sparse, max_size=3), st.binary(max_size=9))
        def post(rows: Any, rest: bytes) -> None:
            batch: Any = {"instance": next(instances), "sequence": 0, "rows": rows}
            if isinstance(rows, list):
                whole = msgspec.to_builtins(row_of(probe, "fast"), str_keys=True)
                batch["rows"] = [whole | row if isinstance(row, dict) else row for row in rows]
            for body in (json.dumps(batch).encode(), rest):
                call = it.call("POST", "/v1/nodes/n1/sli", body)
                assert asyncio.run_coroutine_threadsafe(call, loop).result(30)[0] in (200, 400)

        await asyncio.to_thread(post)
        assert (await it.call("GET", "/readyz"))[0] == 200
        await it.call("POST", "/v1/nodes/n1/sli", SliBatch("j", 0, (row_of(probe, "other"),)))
        found = await evaluated(it, probe)
        assert ("Met", 200) == (found["other"]["state"], found["other"]["events"])

    play(scene)
