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
    ns = np.array(list(losses.values()))
    shares.note(np.array(list(losses), np.uint64), ns, np.full(len(ns), 8))


def ended(recent: RecentHalves, join_key: int, role: Role = Role.CLIENT, adjusted_count: int = 1) -> None:
    row = recent.rows[recent.kept]
    recent.kept += 1
    row["at"], row["role"], row["join_key"] = recent.kept, role, join_key
    row["adjusted_count"] = adjusted_count


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


def test_of_two_clients_with_one_key_none_takes_the_loss_and_others_take_theirs(recent):
    shares = ClientShares(recent, Hits(recent), limit=10)
    note(shares, {5: 30})
    ended(recent, 5)
    ended(recent, 5)
    assert shares.take() is None, "whose it is cannot be known"
    note(shares, {5: 12, 6: 7})
    ended(recent, 6)

    found = shares.take()

    assert found is not None
    assert ([6], [7]) == (found.half["join_key"].tolist(), found.new_ns.tolist())


@pytest.mark.parametrize(("of_client", "of_both"), [(1, 8), (8, 8), (64, 64)])
def test_a_client_stands_for_as_many_as_the_rarer_of_both_halves(recent, of_client, of_both):
    shares = ClientShares(recent, Hits(recent), limit=10)
    note(shares, {5: 30})
    ended(recent, 5, adjusted_count=of_client)

    found = shares.take()

    assert found is not None
    assert ([of_both], [of_client]) == (
        found.half["adjusted_count"].tolist(),
        recent.rows["adjusted_count"][:1].tolist(),
    )
