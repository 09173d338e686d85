"""A stand-in for the operator's directory: one plan, its heartbeats, and the counts that the agent hands over.

It speaks the real protocol over TLS (docs/design/directory.md, "Calls"), so that the agent under measurement is the
cluster's own, `latencyprobe agent`.
"""

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec

from latencyprobe.plan import Identity, IdentityAnswer, IdentityRequest, NodePlan, RemoteJoinAnswer
from latencyprobe.plan_stream import PlanLine
from latencyprobe.sli import SliAnswer, SliBatch, SliRow
from tests.support.certificates import make_certificate

_HEARTBEAT_S = 15.0


class Directory(ThreadingHTTPServer):
    """Keeps the rows that it was handed, each once."""

    daemon_threads = True

    def __init__(self, plan: NodePlan) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.plan = plan
        self.closing = threading.Event()
        self.rows: list[SliRow] = []
        self._expected = 0

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"https://localhost:{self.server_address[1]}"

    def take(self, batch: SliBatch) -> SliAnswer:
        """Take the rows of a batch once."""
        if batch.sequence == self._expected:
            self._expected += 1
            self.rows += batch.rows
        return SliAnswer(self._expected)


@contextmanager
def directory(plan: NodePlan, folder: Path) -> Iterator[tuple[Directory, Path]]:
    """Serve a plan; yields the directory and the file of the CA that it is known by."""
    certificate, key = make_certificate(folder, "directory")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with Directory(plan) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server, certificate
        server.closing.set()
        server.shutdown()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Directory

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        line = msgspec.json.encode(PlanLine(self.server.plan)) + b"\n"
        while True:
            try:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
            except OSError:
                return  # the agent has gone
            if self.server.closing.wait(_HEARTBEAT_S):
                return
            line = b"{}\n"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        answer: msgspec.Struct | None = None
        if self.path.endswith("/sli"):
            answer = self.server.take(msgspec.json.decode(body, type=SliBatch))
        elif self.path.endswith("/identities"):
            asked = msgspec.json.decode(body, type=IdentityRequest).addresses
            answer = IdentityAnswer(tuple(map(Identity, asked)), self.server.plan.generation)
        elif self.path.endswith("/remote-join"):
            answer = RemoteJoinAnswer()
        content = msgspec.json.encode(answer) if answer else b""
        self.send_response(200)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""
