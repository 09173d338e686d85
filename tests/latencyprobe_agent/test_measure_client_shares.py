"""What clients share of their server halves' losses."""

import numpy as np
import pytest

from latencyprobe_agent.measure.client_shares import ClientShares
from latencyprobe_agent.measure.hits import Hits
from latencyprobe_agent.measure.recent import RecentHalves
from latencyprobe_agent.vocabulary.records import Role


@pytest.fixture
def recent() -> RecentHalves:
    return RecentHalves(8)


def note(shares: ClientShares, losses: dict[int, int]) -> None:
    shares.note(np.array(list(losses), np.uint64), np.array(list(losses.values())))


def ended(recent: RecentHalves, join_key: int, role: Role = Role.CLIENT) -> None:
    row = recent.rows[recent.kept]
    recent.kept += 1
    row["at"], row["role"], row["join_key"] = recent.kept, role, join_key


def test_losses_of_one_half_add_up_until_its_client_takes_them_once(recent):
    shares = ClientShares(recent, Hits(recent), limit=10)
    note(shares, {5: 30})
    ended(recent, 5, Role.SERVER)
    assert shares.take() is None, "its client's half has not ended"
    note(shares, {5: 12})
    ended(recent, 5)

    found = shares.take()

    assert found is not None
    assert ([42], [Role.CLIENT]) == (found.new_ns.tolist(), found.half["role"].tolist())
    ended(recent, 6)
    assert shares.take() is None


def test_the_oldest_losses_give_way_to_newer_ones(recent):
    shares = ClientShares(recent, Hits(recent), limit=2)
    note(shares, {1: 10, 2: 20, 3: 30})
    for join_key in (1, 2, 3):
        ended(recent, join_key)

    found = shares.take()

    assert found is not None
    assert [20, 30] == found.new_ns.tolist()
