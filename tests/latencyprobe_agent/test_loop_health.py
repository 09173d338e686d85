import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from latencyprobe_agent.loop import health
from latencyprobe_agent.loop.health import Health
from tests.support.ports import loopback_addresses
from tests.support.waiting import wait_until


@pytest.fixture
def served() -> Iterator[tuple[Health, str]]:
    state = Health()
    server = state.serve(0)
    yield state, f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def answer(url: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(url) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def test_it_is_ready_only_while_it_measures(served: tuple[Health, str]) -> None:
    state, url = served
    assert answer(f"{url}/healthz") == (200, b"ok\n")
    assert answer(f"{url}/readyz") == (503, b"not ok\n")
    state.measuring = True
    assert answer(f"{url}/readyz") == (200, b"ok\n")


def test_it_answers_over_ipv4_and_over_ipv6(served: tuple[Health, str]) -> None:
    """A kubelet asks at the pod's first address, which is of IPv6 in some clusters."""
    port = served[1].rpartition(":")[2]
    for host in loopback_addresses():
        assert answer(f"http://{host}:{port}/healthz") == (200, b"ok\n"), host


def test_a_node_without_ipv6_is_answered_over_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    with Health().serve(0) as server:
        assert server.socket.family == socket.AF_INET
        assert answer(f"http://127.0.0.1:{server.server_address[1]}/healthz") == (200, b"ok\n")
        server.shutdown()


def test_a_loop_that_stands_still_is_not_healthy(served: tuple[Health, str], monkeypatch: pytest.MonkeyPatch) -> None:
    state, url = served
    state.measuring = True
    monkeypatch.setattr(health, "_STALLED_S", 0.0)
    assert answer(f"{url}/healthz")[0] == 503
    assert answer(f"{url}/readyz")[0] == 503


@pytest.mark.long
def test_who_holds_connections_keeps_no_question_from_being_answered(served: tuple[Health, str]) -> None:
    """Silent ones, and ones that send a letter now and then, more than it has threads for."""
    state, url = served
    state.measuring = True
    before = health_threads()
    port = int(url.rpartition(":")[2])
    with ExitStack() as stack:
        held = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(200)]
        for one in held[::2]:
            with suppress(OSError):  # cut already
                one.sendall(b"GET /")
        for _ in range(5):
            assert answer(f"{url}/readyz") == (200, b"ok\n")
        wait_until(lambda: health_threads() - before <= 33, "threads are bounded", seen=health_threads)


def health_threads() -> int:
    """Those of connections, which have the name that Python gives them, and the server's own."""
    return sum("process_request_thread" in one.name or one.name == "health" for one in threading.enumerate())


def test_nothing_else_is_told(served: tuple[Health, str]) -> None:
    assert answer(f"{served[1]}/metrics")[0] == 404
