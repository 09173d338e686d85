"""The connection to the API server, as a pod and as a person have it."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from latencyprobe.errors import ClusterError
from latencyprobe_operator.cluster.api import Api, ApiError, Backoff, InPod
from latencyprobe_operator.directory.tls import Certificate


class Server:
    """An HTTPS server that answers with the token it was asked with."""

    def __init__(self, tls_dir: Path) -> None:
        self.tokens: list[str | None] = []
        self._tls = Certificate(tls_dir).context

    async def handle(self, request: web.Request) -> web.Response:
        self.tokens.append(request.headers.get("Authorization"))
        return web.json_response({})

    async def __aenter__(self) -> int:
        app = web.Application()
        app.router.add_get("/readyz", self.handle)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._tls).start()
        return int(self._runner.addresses[0][1])

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()


def test_pod_reads_its_token_at_each_request(tls_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(tls_dir / "tls.crt", tmp_path / "ca.crt")
    token = tmp_path / "token"
    detect = InPod.detect
    monkeypatch.setattr(InPod, "detect", lambda: detect(tmp_path))

    async def play() -> list[str | None]:
        server = Server(tls_dir)
        async with server as port:
            monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
            monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(port))
            token.write_text("one\n")
            async with await Api.connect() as api:
                await api.call("GET", "/readyz")
                token.write_text("two\n")
                await api.call("GET", "/readyz")
        return server.tokens

    assert asyncio.run(play()) == ["Bearer one", "Bearer two"]


def test_address_of_the_api_server_may_be_ipv6(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").touch()
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.delenv("KUBERNETES_SERVICE_PORT", raising=False)
    pod = InPod.detect(tmp_path)
    assert pod is not None
    assert pod.server == "https://[fd00::1]:443"


def test_person_uses_a_kubeconfig(tls_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> list[str | None]:
        server = Server(tls_dir)
        async with server as port:
            cluster = {"server": f"https://127.0.0.1:{port}", "certificate-authority": str(tls_dir / "tls.crt")}
            config = {
                "clusters": [{"name": "c", "cluster": cluster}],
                "users": [{"name": "u", "user": {"token": "mine"}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            }
            (tmp_path / "config").write_text(yaml.safe_dump(config))
            async with await Api.connect() as api:
                await api.call("GET", "/readyz")
        return server.tokens

    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    assert [str(token).lower() for token in asyncio.run(play())] == ["bearer mine"]


def test_without_any_credentials_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(ClusterError, match="set KUBECONFIG"):
        asyncio.run(Api.connect())


def test_backoff_obeys_the_server_within_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async def play() -> None:
        backoff = Backoff()
        errors: list[Any] = [ClusterError("x")] * 2 + [ApiError(429, "busy", 7), ApiError(429, "busy", 3600)]
        for error in errors:
            await backoff.wait(error)
        backoff.reset()
        await backoff.wait(ClusterError("x"))

    monkeypatch.setattr("latencyprobe_operator.cluster.api.asyncio.sleep", sleep)
    asyncio.run(play())
    assert slept == [0.5, 1.0, 7, 60.0, 0.5]


def test_backoff_bears_what_fails_for_days(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async def play() -> None:
        backoff = Backoff()
        for _ in range(2_000):
            await backoff.wait(ClusterError("x"))

    monkeypatch.setattr("latencyprobe_operator.cluster.api.asyncio.sleep", sleep)
    asyncio.run(play())
    assert (len(slept), slept[-1]) == (2_000, 30.0)
