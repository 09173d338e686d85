"""The operator as a process under a small played cluster: every part of `make bench-scale` runs, and what it tells adds
up."""

import pytest

from benchmarks import scale
from benchmarks.scale_figures import rows


@pytest.mark.slow
def test_each_change_reaches_its_agent_and_every_count_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "RECENT_S", 2.0)
    monkeypatch.setattr(scale, "LATE_S", 30.0)
    monkeypatch.setattr(scale, "CHANGES_PER_S_OF_NODE", 1.0)
    said: list[str] = []
    found = scale.measured(scale.size_of(20), 3.0, said.append)
    assert found.changes > 20, said
    assert (len(found.plans_s), found.late, found.differ) == (found.changes, 0, 0)
    assert (len(found.answers_s) > 0, found.refused) == (True, 0)
    assert found.sent > 0
    assert 0 < found.alone < found.with_agents
    assert len({len(rows(one)) for one in (found, found)}) == 1
