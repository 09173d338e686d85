"""What all agents together ask of an operator that was away, in played time."""

import pytest

from benchmarks.restart import simulated

BORNE_PER_S = 750  # came to an operator that had all back in 45 s (docs/design/scale.md, "A restart")


@pytest.mark.long
@pytest.mark.parametrize(("away_s", "plans_s"), [(3.0, 10.0), (30.0, 20.0)])
def test_a_restart_with_5000_nodes_asks_no_more_than_was_borne_and_all_are_back_within_a_minute(
    away_s: float, plans_s: float
) -> None:
    found = simulated(5_000, away_s, plans_s)
    assert found.most_per_s <= BORNE_PER_S
    assert found.back_s <= 60


def test_a_small_cluster_is_back_within_moments() -> None:
    assert simulated(50, 1.0, 0.0).back_s < 3


@pytest.mark.long
def test_without_a_span_all_come_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("latencyprobe_operator.directory.pacing.LONGEST_RETURN_S", 0.0)
    found = simulated(5_000, 3.0, 10.0)
    assert found.most_per_s > BORNE_PER_S
