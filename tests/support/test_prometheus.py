"""The servers that tests ask are real: they have what was backfilled or scraped, and end with who started them."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import requests

from tests.support.prometheus import (
    Series,
    Server,
    needs_prometheus,
    needs_victoria_metrics,
    openmetrics,
    prometheus,
    victoria_metrics,
)
from tests.support.waiting import wait_until

NOW = 1_700_000_000
SERVERS = [
    pytest.param(prometheus, marks=needs_prometheus, id="prometheus"),
    pytest.param(victoria_metrics, marks=needs_victoria_metrics, id="victoria-metrics"),
]
Started = Callable[[Path, str], AbstractContextManager[Server]]

pytestmark = pytest.mark.long  # real servers start


def counter(**labels: str) -> Series:
    """A counter that grows by 1 a second for 3 hours."""
    return Series("events_total", labels, [(NOW - back, 11_000 - back) for back in range(10_800, -1, -60)])


@pytest.mark.parametrize("started", SERVERS)
def test_a_server_has_what_was_backfilled(tmp_path: Path, started: Started) -> None:
    hostile = 'a"b\\c\nd}'
    with started(tmp_path, openmetrics([counter(of="one"), counter(of=hostile)])) as server:
        found = server.query("increase(events_total[1h])", NOW)
        assert {"one": 3600.0, hostile: 3600.0} == {one.labels["of"]: round(one.value, 3) for one in found}
        steps = server.query_range('events_total{of="one"}', NOW - 120, NOW, 60)
        assert [(NOW - 120, 10_880.0), (NOW - 60, 10_940.0), (NOW, 11_000.0)] == steps[0].values


@needs_prometheus
def test_prometheus_scrapes_what_is_exposed(tmp_path: Path) -> None:
    with prometheus(tmp_path, scraping=lambda: "# TYPE up_to gauge\nup_to 7\n# EOF\n") as server:
        found = wait_until(lambda: server.query("up_to"), "the first scrape", 60)
        assert 7 == found[0].value


@pytest.mark.parametrize("started", SERVERS)
def test_a_server_ends_after_a_failure_too(tmp_path: Path, started: Started) -> None:
    with pytest.raises(ZeroDivisionError), started(tmp_path, "") as server:
        raise ZeroDivisionError
    with pytest.raises(requests.ConnectionError):
        server.query("1")


@pytest.mark.parametrize("started", SERVERS)
def test_a_wrong_question_is_told(tmp_path: Path, started: Started) -> None:
    with started(tmp_path, "") as server, pytest.raises(AssertionError, match="sum"):
        server.query("sum(")


@needs_prometheus
def test_text_that_is_no_openmetrics_is_told(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="parsing"), prometheus(tmp_path, "a b\n"):
        pass
