"""tools/top/tally.py: what the RPCs of an interval add up to."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latencyprobe.plan import SpanPolicy
from latencyprobe_agent.measure.halves import Halves, halves
from latencyprobe_agent.measure.rules import TargetSet
from latencyprobe_agent.tools.top import tally
from latencyprobe_agent.tools.top.tally import Tally
from latencyprobe_agent.tools.top.view import Row, rows
from latencyprobe_agent.vocabulary.records import EXCHANGE, Excluded, Outcome, Role
from tests.support.exchanges import at_level, exchanges

SETS = {1: TargetSet(("shop/p/cart",), (), 0, SpanPolicy(1, 0.0, 1), "shop/p")}
MS = 1_000_000


def measured(*records: np.ndarray) -> Halves:
    return halves(np.concatenate([np.zeros(0, EXCHANGE), *records]))


def told(some: Tally, seconds: float = 1.0) -> list[Row]:
    return rows(some.take(), SETS, str, seconds)


@pytest.fixture
def added() -> Tally:
    return Tally()


def test_rpcs_add_up_by_end_process_and_peer(added: Tally) -> None:
    ours = {"reader_tgid": 7, "writer_tgid": 8}
    added.add(measured(exchanges(3, Role.SERVER, **ours), exchanges(2, Role.CLIENT, **ours)))
    added.add(measured(exchanges(4, Role.SERVER, **ours), exchanges(1, Role.SERVER, peer="10.0.0.9", **ours)))

    found = {(row.side, row.process, row.peer): row.rate for row in told(added, 2.0)}

    assert found == {
        ("server", "7", "10.0.0.2"): 3.5,
        ("client", "8", "10.0.0.2"): 1.0,
        ("server", "7", "10.0.0.9"): 0.5,
    }
    assert told(added) == [], "of the next interval"


@given(st.lists(st.integers(1, 10**10), min_size=1, max_size=200))
def test_quantiles_are_those_of_the_durations(durations_ns: list[int]) -> None:
    added = Tally()
    added.add(measured(exchanges(len(durations_ns), Role.CLIENT, stages=(0, np.array(durations_ns), 0, 0))))
    (row,) = told(added)
    in_order = sorted(durations_ns)
    for found_ns, q in ((row.p50_ns, 0.5), (row.p99_ns, 0.99)):
        exact_ns = in_order[int(np.ceil(q * len(in_order))) - 1]
        assert found_ns == pytest.approx(exact_ns, rel=0.022, abs=1e3)  # the first bucket has all below 1 us


def test_failures_stages_and_samples_are_weighed(added: Tally) -> None:
    slow = {"stages": (0, 3 * MS, 0, 0), "flags": at_level(2)}
    added.add(measured(exchanges(1, Role.CLIENT, **slow), exchanges(4, Role.CLIENT, stages=(MS, 0, 0, 0))))
    added.add(measured(exchanges(2, Role.CLIENT, outcome=Outcome.RESET)))
    (row,) = told(added)
    assert (row.rate, row.errors) == (10, 0.2)
    assert dict(row.stages) == pytest.approx({"send": 0.25, "wait": 0.75, "receive": 0, "read_delay": 0})
    assert row.mostly == "wait"


def test_turns_that_are_no_rpc_are_not_in_it(added: Tally) -> None:
    added.add(measured(exchanges(5, Role.SERVER, excluded=Excluded.PUSH)))
    assert told(added) == []


def test_groups_beyond_the_bound_are_one(added: Tally, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tally, "MAX_GROUPS", 3)
    added.add(measured(exchanges(10, Role.SERVER, reader_tgid=np.arange(1, 11))))
    found = told(added)
    assert len(found) == 4
    assert {row.rate for row in found if row.process == "(others)"} == {7.0}
