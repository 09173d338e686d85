"""When agents come back to a directory that all of them have lost in one moment."""

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from latencyprobe.errors import DirectoryError
from latencyprobe.plan import AgentStatus, NodePlan
from latencyprobe.plan_stream import PlanLine
from latencyprobe_agent.directory.client import Directory
from latencyprobe_agent.directory.returning import LONGEST_S, Returning

STATUS = AgentStatus("i", "b", "0", 0, {}, "", (), {})
SPREAD_S = 40.0  # what an operator of 5,000 nodes says


class Clock:
    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def lost(node: str, spread_s: float, clock: Clock | None = None) -> Returning:
    """Return that of an agent whose stream has just ended."""
    returning = Returning(node, clock or Clock())
    returning.opened()
    returning.told(spread_s)
    returning.lost()
    return returning


def came_s(node: str, up_s: float) -> float:
    """Return when an agent finds the operator that all lost at 0 and that answers from `up_s` on."""
    returning, at_s, retry_s = lost(node, SPREAD_S), 0.0, 0.5
    while True:
        at_s += returning.pause_s(retry_s)
        retry_s = min(2 * retry_s, 10.0)
        if at_s >= up_s:
            return at_s


@pytest.mark.parametrize("up_s", [0.0, 3.0, 25.0, 600.0])
def test_5000_agents_are_back_within_40_s_and_never_much_more_than_their_share_in_one_second(up_s: float) -> None:
    times = [came_s(f"node-{i}", up_s) for i in range(5_000)]
    assert max(times) <= up_s + SPREAD_S
    by_second = Counter(int(at_s) for at_s in times)
    assert max(by_second.values()) <= 1.4 * 5_000 / SPREAD_S


def test_a_node_s_moment_is_its_own_and_always_the_same() -> None:
    moments = [lost(node, SPREAD_S).pause_s(0.5) for node in ("n1", "n1", "n2")]
    assert moments[0] == moments[1]
    assert moments[0] != moments[2]


def test_in_a_small_cluster_all_are_back_in_less_than_a_second() -> None:
    assert max(lost(f"node-{i}", 0.8).pause_s(0.5) for i in range(80)) < 1.0


def test_a_directory_that_says_nothing_of_it_is_asked_again_at_once() -> None:
    returning = lost("n1", 0.0)
    assert 0.25 <= returning.pause_s(0.5) <= 0.5
    assert returning.held() == ""


def test_a_directory_cannot_keep_agents_away_for_long() -> None:
    assert lost("n1", 1e9).pause_s(0.5) <= LONGEST_S


def test_posts_wait_for_the_stream_and_without_one_go_once_in_a_span() -> None:
    clock = Clock()
    returning = lost("n1", SPREAD_S, clock)
    assert "posts wait until it is open again" in returning.held()
    clock.now_s += 2 * SPREAD_S
    assert returning.held() == ""
    returning.failed("unreachable: Connection refused")
    assert returning.held() == "unreachable: Connection refused"
    clock.now_s += SPREAD_S / 2
    returning.opened()
    assert returning.held() == ""
    returning.failed("503: busy")
    assert returning.held() == ""


def test_a_post_to_a_directory_that_thousands_have_lost_is_not_sent(
    directory_server: Any, tls_files: tuple[Path, Path, Path], token_file: Path
) -> None:
    directory = Directory(directory_server.url, "n1", token_file=token_file, ca_file=tls_files[0])
    directory_server.answers["/v1/nodes/n1/status"] = (200, {})
    line = PlanLine(NodePlan("n1", 7, "digest", (), ()), return_s=SPREAD_S)
    directory_server.plan_lines = [msgspec.json.encode(line) + b"\n"]
    stream = directory.plans()
    assert line == next(stream)
    directory.status(STATUS)
    posts = len(directory_server.requests)
    stream.close()  # type: ignore[attr-defined]  # a generator behind the Iterator
    with pytest.raises(DirectoryError, match="its plan stream has ended: posts wait"):
        directory.status(STATUS)
    assert posts == len(directory_server.requests)
