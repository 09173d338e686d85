"""report/choosing.py: what is left of a report for one target or peer, and in which order."""

from msgspec.structs import replace

from latencyprobe.report import choosing, model
from latencyprobe.report.choosing import Sort
from latencyprobe.slo.evaluate import State
from tests.latencyprobe.report_examples import IDLE, RICH, document, many

CALM = replace(
    RICH,
    objective="calm",
    state=State.MET,
    error_budget_remaining="80",
    burn_rates=(model.BurnRate("page", "1h", "5m", "14.4", "Quiet", "12", "11"),),
    top_peers=(model.Peer("bank/teller", 3),),
    slowest=(),
    waited_for=(),
)
REPORT = document(RICH, IDLE, CALM)


def order(by: Sort) -> list[str]:
    return [one.objective for one in choosing.sorted_by(REPORT, by).results]


def test_worst_comes_first_by_whatever_it_is_sorted() -> None:
    assert ["fast", "idle", "calm"] == order(Sort.STATE)
    assert ["fast", "calm", "idle"] == order(Sort.BUDGET), "too few events have no budget"
    assert ["calm", "fast", "idle"] == order(Sort.BURN), "both windows of an alert count"
    assert ["calm", "fast", "idle"] == order(Sort.NAME)


def test_sorting_changes_nothing_but_the_order() -> None:
    for by in Sort:
        found = choosing.sorted_by(REPORT, by)
        assert REPORT == replace(found, results=REPORT.results)


def test_of_a_peer_only_those_who_know_of_it_and_only_what_is_of_it() -> None:
    (found,) = choosing.of_peer(REPORT, "teller").results
    assert ("calm", "80") == (found.objective, found.error_budget_remaining)
    (found,) = choosing.of_peer(REPORT, "redis").results
    assert ((), 1, 1) == (found.top_peers, len(found.waited_for), len(found.slowest))
    assert () == choosing.of_peer(REPORT, "nobody").results
    assert {"met": 1} == {k: n for k, n in choosing.of_peer(REPORT, "teller").summary.items() if n}


def test_peers_are_named_once_and_those_of_most_bad_events_first() -> None:
    known = ["shop/frontend", "203.0.113.7", "bank/teller", "shop/cart", "shop/redis:6379"]
    assert known == choosing.peers([REPORT, REPORT])


def test_what_is_cut_off_is_counted() -> None:
    whole = many()
    cut = choosing.first(whole, 3)
    assert (3, 254, whole.summary) == (len(cut.results), cut.omitted, cut.summary)
    assert whole == choosing.first(whole, None) == choosing.first(whole, 256)


def test_target_is_matched_whole() -> None:
    assert () == choosing.of_target(REPORT, "car").results
    assert 3 == len(choosing.of_target(REPORT, "cart").results)
