"""report/words.py: what every form for a person says alike."""

import pytest
from msgspec.structs import replace

from latencyprobe.report import build, model, words
from latencyprobe.slo.evaluate import State
from latencyprobe.store import SqliteStore
from tests.latencyprobe.report_examples import COVERAGE

NOW = 1_790_000_000 // 60 * 60
MET = model.Result("p", "o", "cart", "Client", "1ms", "99", "1d", State.MET, 9, 0, 1, COVERAGE, "")


def test_exchange_of_two_objectives_appears_once(store: SqliteStore) -> None:
    fast = next(result for result in build.build(store, store.objectives(), NOW).results if result.objective == "fast")
    assert 5 == len(words.slowest([fast, fast]))


@pytest.mark.parametrize(
    ("left", "said"), [("12.3", "12.3 %"), ("0", "0 %"), ("-900", "10.0× spent"), (None, ""), ("100", "100 %")]
)
def test_a_budget_is_what_is_left_or_how_often_it_is_spent(left: str | None, said: str) -> None:
    assert said == words.budget(replace(MET, error_budget_remaining=left))


def test_a_failed_exchange_is_mostly_its_error() -> None:
    stages = (model.Stage("process", "40.1234ms"), model.Stage("send", "1ms"))
    slow = model.Slow("7", "2026-09-21T14:03:00Z", "41.1234ms", stages)
    assert "process 40.1ms" == words.largest(slow)
    assert "reset" == words.largest(replace(slow, error="reset"))
    assert "" == words.largest(replace(slow, stages=()))
