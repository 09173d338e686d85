"""What it takes to look at all statuses: that each of them is looked at."""

from benchmarks.made_cluster import Size
from benchmarks.statuses import statuses, turn_s


def test_a_turn_looks_at_every_latencyprobe() -> None:
    looked_at = statuses(Size(20, 600, 4))
    slices = sum(1 for _ in looked_at.desired(0.0, "2026-01-01T00:00:00Z"))
    assert slices == 4 + 4  # of Cluster scope there are no more than of the others
    assert turn_s(looked_at) > 0
