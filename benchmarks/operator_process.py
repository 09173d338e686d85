"""The operator as a process of its own, between an API server on loopback and agents."""

import asyncio
import os
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from benchmarks.api_server import AGENTS, OPERATOR
from tests.support.waiting import until

LIMIT_S = 600.0  # until it is ready


class Operator:
    """`url`: of its directory."""

    def __init__(self, process: asyncio.subprocess.Process, url: str) -> None:
        self.process = process
        self.url = url

    def runs(self) -> bool:
        """Return True. Raises AssertionError once it has ended."""
        assert self.process.returncode is None, "the operator ended: see its log"
        return True

    def memory(self) -> int:
        """Return its resident set."""
        return int(self._read("statm").split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def cpu_s(self) -> float:
        """Return the CPU time that it took so far."""
        user, system = self._read("stat").rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    async def stop(self) -> None:
        """End it, in its own time or after half a minute."""
        if self.process.returncode is not None:
            return
        self.process.terminate()
        try:
            async with asyncio.timeout(30):
                await self.process.wait()
        except TimeoutError:
            self.process.kill()
            await self.process.wait()

    async def until_ready(self, trust: ssl.SSLContext) -> None:
        """Wait until it answers agents."""
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust)) as session:

            async def ready() -> bool:
                self.runs()
                try:
                    async with session.get(f"{self.url}/readyz") as answer:
                        return answer.status == 200
                except aiohttp.ClientConnectionError:
                    return False

            await until(ready, "the operator answers agents", LIMIT_S)

    def _read(self, name: str) -> str:
        return Path(f"/proc/{self.process.pid}/{name}").read_text()


@asynccontextmanager
async def operator(kubeconfig: Path, folder: Path, port: int) -> AsyncIterator[Operator]:
    """Run it until the end of the block; it answers agents from the beginning. `kubeconfig`: of the API server;
    `folder`: with its certificate `tls.crt`, `tls.key`, and for its other files; `port`: of its directory."""
    (folder / "key").write_bytes(bytes(32))
    settings = {"NAMESPACE": OPERATOR, "AGENT_NAMESPACE": AGENTS, "LISTEN": f"127.0.0.1:{port}"}
    files = {"TLS_DIR": ".", "PAIR_KEY_FILE": "key", "STORE": "sli.db"}
    settings |= {name: str(folder / file) for name, file in files.items()}
    environment = {f"LATENCYPROBE_{name}": value for name, value in settings.items()}
    with (folder / "operator.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *(Path(sys.executable).with_name("latencyprobe"), "operator"),
            env=os.environ | environment | {"KUBECONFIG": str(kubeconfig)},
            stdout=log,
            stderr=log,
        )
    running = Operator(process, f"https://localhost:{port}")
    try:
        await running.until_ready(ssl.create_default_context(cafile=str(folder / "tls.crt")))
        yield running
    finally:
        await running.stop()
