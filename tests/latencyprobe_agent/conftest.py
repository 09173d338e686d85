"""A real directory over real TLS, and a real OTLP/HTTP sink, both in this process on loopback."""

import json
import ssl
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from latencyprobe import wire
from latencyprobe_agent.measure.halves import Halves, halves
from latencyprobe_agent.measure.pairing import LocalJoin
from latencyprobe_agent.measure.sampling import Reason, Sampled
from latencyprobe_agent.measure.turn import InForce, Turn, empty
from latencyprobe_agent.vocabulary.now import Now
from latencyprobe_agent.vocabulary.records import EXCHANGE
from tests.support.certificates import make_certificate
from tests.support.exchanges import exchanges
from tests.support.otlp import OtlpSink


class DirectoryServer(ThreadingHTTPServer):
    """`answers[path] = (status, document)`, with `headers`; `plan_lines` are streamed and the stream stays open.
    `broken`: instead of any other answer the connection ends after these bytes."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _DirectoryHandler)
        self.answers: dict[str, tuple[int, Any]] = {}
        self.headers: dict[str, str] = {}
        self.plan_lines: list[bytes] = []
        self.broken = b""
        self.requests: list[tuple[str, str, dict[str, Any]]] = []  # path, authorization, document
        self.versions: list[str] = []
        self.closing = threading.Event()

    @property
    def url(self) -> str:
        return f"https://localhost:{self.server_address[1]}"


class _DirectoryHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: DirectoryServer

    def do_GET(self) -> None:
        self.server.requests.append((self.path, self.headers["authorization"], {}))
        if self.server.broken:
            self._break_off()
            return
        status, _ = self.server.answers.get(self.path, (200, None))
        self.send_response(status)
        if status != 200 or not self.path.endswith("/plan"):
            self.send_header("content-length", "0")
            self.end_headers()
            return
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for line in self.server.plan_lines:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
            self.wfile.flush()
        self.server.closing.wait(30)

    def do_POST(self) -> None:
        document = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.requests.append((self.path, self.headers["authorization"], document))
        self.server.versions.append(self.headers[wire.HEADER])
        if self.server.broken:
            self._break_off()
            return
        status, answer = self.server.answers.get(self.path, (404, "no such path"))
        answer = answer(document) if callable(answer) else answer
        if isinstance(answer, tuple):
            status, answer = answer
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _break_off(self) -> None:
        self.wfile.write(self.server.broken)
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="session")
def tls_files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """Certificate and key of the directory, and the certificate of somebody else."""
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = make_certificate(folder, "directory")
    stranger, _ = make_certificate(folder, "stranger")
    return certificate, key, stranger


@pytest.fixture
def directory_server(tls_files: tuple[Path, Path, Path]) -> Iterator[DirectoryServer]:
    """Serve until the test ends."""
    certificate, key, _ = tls_files
    server = DirectoryServer()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.closing.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    """A token as the kubelet mounts it."""
    path = tmp_path / "token"
    path.write_text("token-1\n")
    return path


@pytest.fixture
def dropped() -> Counter[str]:
    """Rows that a spool has dropped, by reason."""
    return Counter()


@pytest.fixture
def otlp_sink() -> Iterator[OtlpSink]:
    """Serve until the test ends."""
    server = OtlpSink()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="session")
def make_halves() -> Any:
    """Return a function to Halves. Each record: what `exchanges()` takes for one."""

    def make(*records: dict[str, Any]) -> Halves:
        batch = [np.zeros(0, EXCHANGE), *(exchanges(1, **record) for record in records)]
        return halves(np.concatenate(batch))

    return make


@pytest.fixture(scope="session")
def make_turn(make_halves: Any) -> Any:
    """Return a function to a Turn. `records`: of this turn, as `make_halves` takes them, joined; other fields by name.

    `sampled`: True for all halves of the turn.
    """

    def make(
        in_force: InForce, *records: dict[str, Any], at_s: float = 0.0, sampled: bool = False, **fields: Any
    ) -> Turn:
        some = make_halves(*records)
        fields = {"halves": some, "pairs": LocalJoin().join(some)} | fields
        if sampled:
            trace_id = some.trace_ids(in_force.plan.pair_key)
            fields["sampled"] = Sampled(some, trace_id, np.full(len(some), Reason.SLOW, np.uint8), np.ones(len(some)))
        boot_ns = round(at_s * 1e9)
        return empty(Now(boot_ns, boot_ns + 10**18), in_force)._replace(**fields)

    return make
