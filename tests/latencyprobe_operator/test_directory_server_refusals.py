"""The directory over real TLS: everything that is refused, and how that is said."""

import asyncio
import io

import msgspec
import pytest

from latencyprobe.errors import StoreError
from latencyprobe.plan import RemoteJoinMessage
from latencyprobe.sli import SliBatch
from latencyprobe_operator.directory import callers
from tests.latencyprobe_operator.conftest import agent_status
from tests.latencyprobe_operator.directory_world import Play, World


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


@pytest.mark.parametrize("path", ["/v1/nodes/n1/plan", "/metrics"])
def test_token_of_bytes_that_are_no_text_is_none(play: Play, path: str) -> None:
    async def scene(it: World) -> None:
        headers = {"Authorization": "Bearer \u00ff\u20ac"}
        async with it.client.get(it.url + path, headers=headers) as answer:
            assert (answer.status, "send a service account token" in await answer.text()) == (401, True)
        reader, writer = await asyncio.open_connection(*it.url.removeprefix("https://").split(":"), ssl=it.tls)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: it\r\nConnection: close\r\n".encode())
        writer.write(b"Authorization: Bearer \xff\xfe\r\n\r\n")
        assert b" 401 " in (await reader.read()).partition(b"\r\n")[0]
        writer.close()

    play(scene)


@pytest.mark.parametrize(("encoding", "body"), [("gzip", b"{}"), ("deflate", b'{"a":' * 5_000)])
def test_body_that_is_said_to_be_compressed_is_refused_with_the_reason(play: Play, encoding: str, body: bytes) -> None:
    """To decompress the second one aiohttp would take for ever."""

    async def scene(it: World) -> None:
        headers = {"Authorization": "Bearer token-n1", "Content-Encoding": encoding}
        call = it.client.post(f"{it.url}/v1/identities", data=io.BytesIO(body), headers=headers)
        async with asyncio.timeout(10), call as answer:
            assert (answer.status, encoding in (await answer.json())["error"]) == (400, True)

    play(scene)


@pytest.mark.parametrize(
    ("path", "body", "named"),
    [
        ("/v1/nodes/n1/status", b'{"instance": 5}', b"$.instance"),
        ("/v1/nodes/n1/status", b"{", b"truncated"),
        ("/v1/nodes/n1/sli", b'{"instance":"i","sequence":0,"rows":[{"good":"x"}]}', b"$.rows[0].good"),
        ("/v1/nodes/n1/sli", b'{"instance":"i","sequence":-1,"rows":[]}', b"$.sequence"),
        ("/v1/nodes/n1/sli", b'{"instance":"i","sequence":1' + b"0" * 25 + b',"rows":[]}', b"$.sequence"),
        ("/v1/nodes/n1/sli", b'{"instance":"\xff","sequence":0,"rows":[]}', b"utf-8"),
        ("/v1/identities", b'{"addresses":[1]}', b"$.addresses[0]"),
        ("/v1/remote-join", b'{"asks":[{"keys":["../x"],"address":"10.0.0.1"}]}', b"$.asks[0].keys[0]"),
        (
            "/v1/remote-join",
            b'{"halves":[{"key":"%s","stages_ns":[1,-2,3,4]}]}' % (b"a" * 32),
            b"$.halves[0].stages_ns[1]",
        ),
        ("/v1/identities", b'{"addresses":' + b"[" * 50_000, b"$.addresses[0]"),
        ("/v1/nodes/n1/sli", b'{"unknown":' + b"[" * 50_000, b"maximum recursion depth"),
        ("/v1/identities", b'{"addresses":["%s"]}' % (b"1" * 65), b"$.addresses[0]"),
        ("/v1/remote-join", b'{"asks":[{"keys":[],"address":"%s"}]}' % (b"1" * 65), b"$.asks[0].address"),
    ],
)
def test_bad_document_gets_400_with_the_fields_path(play: Play, path: str, body: bytes, named: bytes) -> None:
    async def scene(it: World) -> None:
        status, answer = await it.call("POST", path, body)
        assert status == 400
        assert named in answer
        assert it.agents.of == {}

    play(scene)


@pytest.mark.parametrize("version", ["2", "", "x"])
def test_document_of_another_version_that_cannot_be_read_is_told_from_a_bad_one(play: Play, version: str) -> None:
    """The agent keeps it until one of both is upgraded: docs/design/directory.md, "Versions"."""

    async def scene(it: World) -> None:
        status, answer = await it.call("POST", "/v1/nodes/n1/sli", b'{"rows": "packed"}', version=version)
        assert status == 426
        assert f"wire version {version or 'none'}, this operator speaks 1: upgrade the older of both".encode() in answer

    play(scene)


def test_who_says_too_much_in_statuses_is_told_to_wait_and_keeps_nobody_out(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callers, "STATUS_BYTES_PER_S", 1 << 10)

    async def scene(it: World) -> None:
        async def said(node: str) -> tuple[int, int]:
            status = msgspec.json.encode(agent_status(it.planner.plan_of(node).generation))
            headers = {"Authorization": f"Bearer token-{node}"}
            data = status.ljust(1 << 20)
            async with it.client.post(f"{it.url}/v1/nodes/{node}/status", data=data, headers=headers) as answer:
                return answer.status, int(answer.headers.get("Retry-After", 0))

        for _ in range(4):
            assert await said("n1") == (204, 0)
        it.directory.callers.statuses.of("n1").spend(100 << 10)  # what has come back meanwhile
        refused, wait_s = await said("n1")
        assert (refused, wait_s > 0) == (429, True)
        assert await said("n2") == (204, 0)

    play(scene)


def test_document_that_is_too_large_gets_413(play: Play) -> None:
    async def scene(it: World) -> None:
        assert (await it.call("POST", "/v1/nodes/n1/status", io.BytesIO(b" " * (1100 << 10))))[0] == 413
        assert (await it.call("POST", "/v1/identities", b" " * (300 << 10)))[0] == 413
        assert (await it.call("POST", "/v1/nodes/n1/sli", io.BytesIO(b" " * (5 << 20))))[0] == 413

    play(scene)


@pytest.mark.parametrize(
    "garbage", [b"\x00" * 64, b"GET / HTTP/9\r\n\r\n", b"GET / HTTP/1.1\r\nA: " + b"x" * 10_000 + b"\r\n\r\n"]
)
def test_what_is_no_http_is_counted_and_not_logged(
    play: Play, caplog: pytest.LogCaptureFixture, garbage: bytes
) -> None:
    async def scene(it: World) -> None:
        host, _, port = it.url.removeprefix("https://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port), ssl=it.tls)
        writer.write(garbage)
        assert (await reader.read()).startswith(b"HTTP/1.0 400")
        writer.close()
        assert it.directory.requests["unknown", 400] == 1
        assert caplog.records == []

    play(scene)


def test_who_goes_before_he_is_told_to_go_on_is_not_logged(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    async def scene(it: World) -> None:
        host, _, port = it.url.removeprefix("https://").partition(":")
        head = b"POST /v1/identities HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n"
        for _ in range(5):
            _, writer = await asyncio.open_connection(host, int(port), ssl=it.tls)
            writer.write(head)
            writer.close()
        assert (await it.call("POST", "/v1/identities", {"addresses": []}))[0] == 200
        assert caplog.records == []

    play(scene)


def test_counts_that_cannot_be_stored_are_refused_for_now_without_the_reason(play: Play) -> None:
    async def scene(it: World) -> None:
        await it.store_thread.run(it.store_thread.store.close)
        status, body = await it.call("POST", "/v1/nodes/n1/sli", SliBatch("i", 0, ()))
        assert (status, b"see the operator's log" in body) == (503, True)
        it.store_thread._failed(StoreError("/sli.db: disk is full", "StoreFull"))
        headers = {"Authorization": "Bearer token-n1"}
        data = msgspec.json.encode(SliBatch("i", 0, ()))
        async with it.client.post(f"{it.url}/v1/nodes/n1/sli", data=data, headers=headers) as answer:
            assert (answer.status, answer.headers["Retry-After"]) == (503, "30")
        assert (await it.call("POST", "/v1/identities", {"addresses": []}))[0] == 200, "what needs no store goes on"

    play(scene)


def test_remote_join_needs_an_agents_token(play: Play) -> None:
    async def scene(it: World) -> None:
        assert [
            (await it.call("POST", "/v1/remote-join", RemoteJoinMessage(), t))[0] for t in ("", "token-stranger")
        ] == [401, 403]

    play(scene)
