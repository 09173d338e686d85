"""The open-loop generator against its echo: what it counts, and from when it counts time. Needs a C compiler."""

import pytest

from benchmarks.builds import build
from benchmarks.loads import Generator, Offered, echo
from tests.support.ports import free_port

pytestmark = pytest.mark.root  # clang and a C compiler are there, as for kernel tests


@pytest.fixture(scope="module", autouse=True)
def built():
    build()


def offered(*, per_second: float, connections: int, delay_ms: int = 0, slow_every: int = 0) -> Offered:
    port = free_port()
    with echo(port, delay_ms):
        load = {"per_second": per_second, "seconds": 0.5, "slow_every": slow_every}
        return Generator(port, "echo", connections, **load).result()


def test_every_request_is_answered_and_counted():
    found = offered(per_second=2000, connections=100)
    assert found.sent == found.answered > 0
    assert found.slow == 0
    assert 0 < found.p50_ns <= found.p90_ns <= found.p99_ns <= found.p999_ns


def test_late_answers_are_late_in_the_quantiles():
    found = offered(per_second=1000, connections=100, delay_ms=40, slow_every=10)
    assert found.slow == found.sent // 10
    assert found.over >= found.slow
    assert found.p99_ns > 0.99 * 40e6  # a bucket is 0.4 % wide


def test_the_wait_for_a_free_connection_is_part_of_the_latency():
    found = offered(per_second=100, connections=1, delay_ms=40, slow_every=1)
    assert found.sent == found.answered == found.slow
    assert found.p99_ns > 2 * 40e6  # one connection answers 25 a second: the last ones wait for all before them
