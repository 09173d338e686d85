"""How often agents hand in counts: by the size of the cluster, and seldom while rows pile up. When they come back."""

import pytest

from latencyprobe_operator.directory.pacing import Pacing


@pytest.mark.parametrize(
    ("nodes", "full", "usual_s", "next_s"),
    [(0, 0, 5, 5), (250, 0, 5, 5), (1_000, 0, 20, 20), (9_000, 0, 60, 60), (3, 0.5, 5, 30), (1_000, 1, 20, 60)],
)
def test_pause_grows_with_the_nodes_and_while_rows_pile_up(
    nodes: int, full: float, usual_s: float, next_s: float
) -> None:
    pacing = Pacing(lambda: nodes, lambda: full)
    assert (pacing.usual_s, pacing.next_s) == (usual_s, next_s)


@pytest.mark.parametrize(("nodes", "return_s"), [(0, 0), (2, 0.02), (80, 0.8), (500, 5), (5_000, 35), (10_000, 35)])
def test_agents_come_back_at_once_in_a_small_cluster_and_within_35_s_in_a_large_one(
    nodes: int, return_s: float
) -> None:
    assert return_s == Pacing(lambda: nodes, lambda: 0.0).return_s


@pytest.mark.parametrize(("nodes", "status_s"), [(0, 15), (900, 15), (2_400, 40), (5_000, 60), (10_000, 60)])
def test_statuses_come_more_seldom_in_a_large_cluster(nodes: int, status_s: float) -> None:
    assert status_s == Pacing(lambda: nodes).status_s


@pytest.mark.parametrize(("nodes", "known_s"), [(0, 15), (150, 15), (2_000, 200), (5_000, 300), (10_000, 300)])
def test_questions_come_more_seldom_in_a_large_cluster(nodes: int, known_s: float) -> None:
    assert known_s == Pacing(lambda: nodes).known_s
