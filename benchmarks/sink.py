"""A collector that takes bytes: OTLP over HTTP, in a thread of the bench. It parses nothing and can keep bodies."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Sink(ThreadingHTTPServer):
    """`received`: bytes so far. `bodies`: of requests for traces, while `keep` is set."""

    daemon_threads = True

    def __init__(self, keep: bool) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.keep = keep
        self.received = 0
        self.bodies: list[bytes] = []

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def sink(keep: bool = False) -> Iterator[Sink]:
    """Take what is sent until the end."""
    with Sink(keep) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Sink

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.received += len(body)
        if self.server.keep and self.path.endswith("/traces"):
            self.server.bodies.append(body)
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""
