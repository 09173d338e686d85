import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from latencyprobe_agent.loop import health
from latencyprobe_agent.loop.health import Health


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


def test_a_loop_that_stands_still_is_not_healthy(served: tuple[Health, str], monkeypatch: pytest.MonkeyPatch) -> None:
    state, url = served
    state.measuring = True
    monkeypatch.setattr(health, "_STALLED_S", 0.0)
    assert answer(f"{url}/healthz")[0] == 503
    assert answer(f"{url}/readyz")[0] == 503


def test_nothing_else_is_told(served: tuple[Health, str]) -> None:
    assert answer(f"{served[1]}/metrics")[0] == 404
