"""budget.py: the node's spans are shared out among namespaces, whoever comes first and however much he wants."""

from hypothesis import given
from hypothesis import strategies as st

from latencyprobe_agent.measure.budget import Budget

TENTH_NS = 10**8


def played(budget: Budget, *tenths: dict[str, int], namespaces: int = 2) -> list[dict[str, int]]:
    """Let namespaces want spans in each tenth of a second, in order; return what each got."""
    return [budget.shared_out(wanted, namespaces, at * TENTH_NS, 0) for at, wanted in enumerate(tenths)]


def test_who_wants_no_more_than_an_equal_part_has_it_whenever_he_comes():
    tenths = [{"evil": 1000}, {"evil": 1000, "shop": 5}, {"evil": 1000}, {"shop": 5}] * 25

    given = played(Budget(100), *tenths)

    assert [5] * 50 == [of["shop"] for of in given if "shop" in of]


def test_what_nobody_else_wants_is_somebody_s_and_over_time_there_is_no_more_than_the_node_s():
    alone = played(Budget(100), *[{"evil": 1000}] * 100)
    both = played(Budget(100), *[{"evil": 1000}, {"shop": 1000}] * 50)

    assert 100 + 99 * 10 == sum(of["evil"] for of in alone)
    got = {name: sum(of.get(name, 0) for of in both) for name in ("evil", "shop")}
    assert 990 <= got["evil"] + got["shop"] <= 1000 + 2 * 100, "ten seconds, and what each had saved up"
    assert got["shop"] >= 500


@given(st.lists(st.dictionaries(st.sampled_from("abcde"), st.integers(0, 300), min_size=1), max_size=60))
def test_whatever_others_want_an_equal_part_is_there(tenths: list[dict[str, int]]):
    """Of each second, with one saved up; all together no more than the node's, and as much once."""
    given = played(Budget(100), *tenths, namespaces=5)

    least = dict.fromkeys("abcde", 20.0)
    for wanted, got in zip(tenths, given, strict=True):
        for name, spans in wanted.items():
            assert got[name] >= min(spans, int(least[name] + 1e-9))
            assert got[name] <= spans
            least[name] = max(0.0, least[name] - got[name])
        least = {name: min(20.0, left + 2) for name, left in least.items()}
    assert sum(sum(got.values()) for got in given) <= 100 + 10 * len(tenths) + 100


def test_a_node_without_spans_has_none_for_anybody():
    assert [{"shop": 0}] * 3 == played(Budget(0), *[{"shop": 5}] * 3)


def test_of_more_namespaces_than_spans_each_has_one_now_and_then():
    given = played(Budget(2), *[{"evil": 9}, {"shop": 9}] * 100, namespaces=10)

    assert sum(of.get("shop", 0) for of in given) >= 4
    assert sum(sum(of.values()) for of in given) <= 2 * 20 + 2 + 2


def test_those_who_are_in_no_plan_any_more_are_forgotten():
    budget = Budget(100)
    for number in range(1000):
        names = {f"evil/p{number}", "evil", "shop"}
        for name in names:
            budget.left(name, 100, number)
        budget.limit(names, number)
        budget.keep(names)

    assert len(budget._left) < 10
    assert len(budget._limited_ns) < 10
    assert names <= budget._left.keys()
