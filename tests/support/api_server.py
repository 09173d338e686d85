"""A real etcd and kube-apiserver on loopback, and nothing else of a cluster: no node, no controller, no need for root.

What is created there stays as it is: no pod is ever started, no owner's objects are collected.
"""

import asyncio
import json
import selectors
import subprocess
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import urllib3
import yaml

from tests.support.certificates import make_certificate
from tests.support.ports import free_port
from tests.support.servers import running
from tests.support.waiting import until, wait_until

REPOSITORY = Path(__file__).parents[2]
BENCH = REPOSITORY / "tests/e2e/bench/bench"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
TOKEN = "admin"
START_S = 120  # on a machine that does much else


class ApiServer(NamedTuple):
    """`url` has host and port; whoever sends the bearer token `token` may do everything. `kubeconfig`: both, for
    KUBECONFIG; `certificate`: by which the server is trusted."""

    url: str
    token: str
    certificate: Path
    kubeconfig: Path
    pool: urllib3.PoolManager

    def answer(
        self, method: str, path: str, body: bytes | None = None, content_type: str = "application/json"
    ) -> tuple[int, bytes]:
        """Return HTTP status and body; threads may ask side by side."""
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": content_type}
        answer = self.pool.request(method, self.url + path, body=body, headers=headers, retries=False)
        return answer.status, answer.data

    def call(self, method: str, path: str, document: object = None) -> tuple[int, Any]:
        """Return HTTP status and what the answer says."""
        status, answer = self.answer(method, path, None if document is None else json.dumps(document).encode())
        return status, json.loads(answer) if answer.startswith(b"{") else answer.decode()

    def create(self, path: str, document: object) -> dict[str, Any]:
        """Return the object that was made."""
        status, answer = self.call("POST", path, document)
        assert status == 201, answer
        found: dict[str, Any] = answer
        return found

    def define(self, definition: dict[str, Any]) -> None:
        """Make a kind, and wait until it is served."""
        self.create(CRDS, definition)
        spec = definition["spec"]
        served = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
        wait_until(lambda: self.call("GET", served)[0] == 200, f"{served} is served", START_S)


def bench(*words: str) -> str:
    """Return what the bench prints."""
    done = subprocess.run([BENCH, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def program() -> str:
    """The multi-call binary of all of Kubernetes; the first time on a machine it is compiled, which takes minutes."""
    return bench("program", "kube")


@contextmanager
def api_server(folder: Path, *options: str) -> Iterator[ApiServer]:
    """An API server that is ready and knows the repository's resources. `folder`: for everything that it writes;
    `options`: more for kube-apiserver."""
    kube, certificate, key = program(), *make_certificate(folder, "api")
    etcd_port, peer_port, port = free_port(), free_port(), free_port()
    etcd, peer = f"http://127.0.0.1:{etcd_port}", f"http://127.0.0.1:{peer_port}"
    tokens, kubeconfig = folder / "tokens.csv", folder / "kubeconfig"
    tokens.write_text(f'{TOKEN},admin,admin,"system:masters"\n')
    url = f"https://127.0.0.1:{port}"
    kubeconfig.write_text(_kubeconfig(url, certificate))
    store = (
        *(kube, "etcd", "--data-dir", folder / "etcd", "--unsafe-no-fsync", "--log-level", "warn"),
        *("--listen-client-urls", etcd, "--advertise-client-urls", etcd, "--listen-peer-urls", peer),
        *("--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}"),
    )
    server = (
        *(kube, "kube-apiserver", f"--etcd-servers={etcd}", "--bind-address=127.0.0.1", f"--secure-port={port}"),
        *(
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",
            "--service-cluster-ip-range=10.96.0.0/16",
        ),
        *(f"--tls-cert-file={certificate}", f"--tls-private-key-file={key}", f"--token-auth-file={tokens}"),
        *("--service-account-issuer=https://kubernetes.default.svc", f"--service-account-key-file={certificate}"),
        *(f"--service-account-signing-key-file={key}", "--authorization-mode=RBAC"),
        "--disable-admission-plugins=ServiceAccount",  # nobody makes the accounts that it would give to pods
        *options,
    )
    with (
        urllib3.PoolManager(maxsize=16, ca_certs=str(certificate), timeout=60) as pool,
        running(*store, port=etcd_port, timeout_s=START_S, log=folder / "etcd.log"),
        running(*server, port=port, timeout_s=START_S, log=folder / "kube-apiserver.log"),
    ):
        it = ApiServer(url, TOKEN, certificate, kubeconfig, pool)
        unready = urllib3.exceptions.HTTPError  # it listens before it answers
        wait_until(lambda: it.call("GET", "/readyz")[1] == "ok", "it is ready", START_S, unready=unready)
        for path in sorted((REPOSITORY / "crds").glob("*.yaml")):
            for definition in yaml.safe_load_all(path.read_text()):
                it.define(definition)
        yield it


def _kubeconfig(url: str, certificate: Path) -> str:
    cluster, user = {"server": url, "certificate-authority": str(certificate)}, {"token": TOKEN}
    context = {"cluster": "it", "user": "it"}
    return yaml.safe_dump({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "it", "cluster": cluster}],
        "users": [{"name": "it", "user": user}],
        "contexts": [{"name": "it", "context": context}],
        "current-context": "it",
    })  # fmt: skip


def run_until_closed(scene: Coroutine[Any, Any, None]) -> None:
    """Run what talks to an API server, and wait, however it ends, until its connections are closed, a minute at most:
    one of TLS is when its peer has said goodbye too, for which a loop that ends does not wait, and a later test has the
    warning (aiohttp, "Graceful shutdown"). In place of `asyncio.run` it does so for a loop in another thread."""
    selector = selectors.DefaultSelector()

    async def whole() -> None:
        try:
            await scene
        finally:
            with suppress(AssertionError):
                await until(lambda: len(selector.get_map()) <= 1, timeout_s=60)  # one is the loop's own

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        runner.run(whole())
