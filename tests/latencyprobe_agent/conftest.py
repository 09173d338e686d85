"""A real directory over real TLS, and a real OTLP/HTTP sink, both in this process on loopback."""

import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from latencyprobe_agent.measure.halves import Halves, halves
from latencyprobe_agent.measure.pairing import LocalJoin
from latencyprobe_agent.measure.rules import packed
from latencyprobe_agent.measure.sampling import Reason, Sampled
from latencyprobe_agent.measure.turn import InForce, Turn, empty
from latencyprobe_agent.signals.exchanges import CLIENT_POINTS, SERVER_POINTS
from latencyprobe_agent.vocabulary.now import Now
from latencyprobe_agent.vocabulary.records import EXCHANGE, ExchangeClass, Role
from tests.support.certificates import make_certificate


class DirectoryServer(ThreadingHTTPServer):
    """`answers[path] = (status, document)`, `plan_lines` are streamed and the stream then stays open."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _DirectoryHandler)
        self.answers: dict[str, tuple[int, Any]] = {}
        self.plan_lines: list[bytes] = []
        self.requests: list[tuple[str, str, dict[str, Any]]] = []  # path, authorization, document
        self.closing = threading.Event()

    @property
    def url(self) -> str:
        return f"https://localhost:{self.server_address[1]}"


class _DirectoryHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: DirectoryServer

    def do_GET(self) -> None:
        self.server.requests.append((self.path, self.headers["authorization"], {}))
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
        status, answer = self.server.answers.get(self.path, (404, "no such path"))
        answer = answer(document) if callable(answer) else answer
        if isinstance(answer, tuple):
            status, answer = answer
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

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


class OtlpSink(ThreadingHTTPServer):
    """Keeps each request: path, headers, body. `status`, `headers` and `body` are what it answers."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _SinkHandler)
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.status = 200
        self.headers: dict[str, str] = {}
        self.body = b""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _SinkHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: OtlpSink

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.requests.append((self.path, headers, body))
        self.send_response(self.server.status)
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(self.server.body)))
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, *_: object) -> None:
        pass


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


def exchange(role: Role, *, start_ns: int = 1_000_000_000, stages: tuple[int, ...] = (0,) * 4, **fields: Any) -> Any:
    """One EXCHANGE record whose half has these stages. `peer` and `local` are addresses as text."""
    record = np.zeros((), EXCHANGE)
    points = SERVER_POINTS if role is Role.SERVER else CLIENT_POINTS
    for name, at_ns in zip(points, np.cumsum([start_ns, *stages]).tolist(), strict=True):
        record[name] = at_ns
    record["role"], record["target_set"], record["conn_class"] = role, 1, ExchangeClass.PINGPONG
    record["rtt_min_us"] = 0xFFFFFFFF
    ports = (6379, 40000) if role is Role.SERVER else (40000, 6379)
    record["local_port"], record["peer_port"] = ports
    for name, value in {"local": "10.0.0.1", "peer": "10.0.0.2", **fields}.items():
        if name in ("local", "peer"):
            record[f"{name}_addr"] = np.frombuffer(packed(value), np.uint8)
        else:
            record[name] = value
    return record


@pytest.fixture(scope="session")
def make_halves() -> Any:
    """Return a function from records, as `exchange()` takes them, to Halves."""

    def make(*records: dict[str, Any]) -> Halves:
        return halves(np.array([exchange(**record) for record in records], EXCHANGE), b"k" * 32)

    return make


@pytest.fixture(scope="session")
def make_turn(make_halves: Any) -> Any:
    """Return a function to a Turn. `records`: of this turn, as `exchange()` takes them, joined; other fields by name.

    `sampled`: True for all halves of the turn.
    """

    def make(
        in_force: InForce, *records: dict[str, Any], at_s: float = 0.0, sampled: bool = False, **fields: Any
    ) -> Turn:
        some = make_halves(*records)
        fields = {"halves": some, "pairs": LocalJoin().join(some)} | fields
        if sampled:
            fields["sampled"] = Sampled(some, np.full(len(some), Reason.SLOW, np.uint8), np.ones(len(some)))
        boot_ns = round(at_s * 1e9)
        return empty(Now(boot_ns, boot_ns + 10**18), in_force)._replace(**fields)

    return make
