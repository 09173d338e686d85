"""What Kubernetes asks the agent: GET /healthz (the loop turns) and /readyz (it measures), in a thread of its own.

The answers are fixed texts: nobody needs a token to read them, and nobody learns anything from them
(docs/design/directory.md, "Health").
"""

import socket
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from http.server import ThreadingHTTPServer

_CONNECTIONS = 32  # at a time, and threads
_SILENT_S = 5.0
_STALLED_S = 30.0  # the loop turns once a second; collecting 16 MB of counts takes well below a second


class Health:
    """`turned()` is due once per tick; `measuring`: programs are attached."""

    def __init__(self) -> None:
        self.measuring = False
        self._turned = time.monotonic()

    def turned(self) -> None:
        """Note that the loop has turned."""
        self._turned = time.monotonic()

    @property
    def alive(self) -> bool:
        """Whether the loop has turned lately."""
        return time.monotonic() - self._turned < _STALLED_S

    def serve(self, port: int) -> "ThreadingHTTPServer":
        """Answer on all addresses of `port`, of IPv4 and IPv6, until `shutdown()`. Of too many connections the oldest
        are cut: Kubernetes asks as soon as it has connected, who only holds connections does not."""
        from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer  # noqa: PLC0415 - `run` serves nobody

        health = self

        class Handler(BaseHTTPRequestHandler):
            timeout = _SILENT_S

            def do_GET(self) -> None:
                asked = {"/healthz": health.alive, "/readyz": health.alive and health.measuring}.get(self.path)
                body = b"ok\n" if asked else b"not ok\n"
                self.send_response(404 if asked is None else 200 if asked else 503)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Stay silent: a probe every few seconds is no news."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128
            address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET

            def __init__(self) -> None:
                self.connections: dict[socket.socket, None] = {}  # oldest first
                super().__init__(("", port), Handler)

            def server_bind(self) -> None:
                if self.address_family == socket.AF_INET6:
                    self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)  # else a sysctl decides
                super().server_bind()

            def process_request(self, request: Any, client_address: Any) -> None:
                self.connections[request] = None
                for oldest in list(self.connections)[:-_CONNECTIONS]:
                    _cut(oldest)
                super().process_request(request, client_address)

            def shutdown_request(self, request: Any) -> None:
                self.connections.pop(request, None)
                super().shutdown_request(request)

            def handle_error(self, *_: object) -> None:
                """Stay silent: one that was cut, or went."""

        server = Server()
        threading.Thread(target=server.serve_forever, name="health", daemon=True).start()
        return server


def _cut(connection: socket.socket) -> None:
    """End a connection that another thread waits at: that one closes it then."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
