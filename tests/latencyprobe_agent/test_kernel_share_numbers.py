"""Who has which share of what namespaces have in common in the kernel."""

from random import Random

from latencyprobe_agent.kernel.share_numbers import NUMBERS, ShareNumbers


def test_a_namespace_keeps_its_number_whoever_comes_beside_it() -> None:
    numbers = ShareNumbers()
    assert numbers.of(["shop"]) == {"shop": 0}
    assert numbers.of(["shop", "audit"]) == {"shop": 0, "audit": 1}


def test_one_that_comes_back_finds_what_its_connections_still_hold() -> None:
    numbers = ShareNumbers()
    before = numbers.of(["shop", "audit"])
    assert numbers.of(["web"])["web"] not in before.values()
    assert numbers.of(["audit", "shop"]) == before


def test_when_no_number_is_fresh_that_of_the_one_that_has_been_gone_for_longest_is_given_away() -> None:
    numbers = ShareNumbers(3)
    first = numbers.of(["a", "b", "c"])
    numbers.of(["a", "c"])
    numbers.of(["a"])
    assert numbers.of(["a", "d"]) == {"a": first["a"], "d": first["b"]}
    assert numbers.of(["b", "d"]) == {"d": first["b"], "b": first["c"]}


def test_no_two_that_are_named_at_once_have_the_same_number() -> None:
    dice, numbers, before = Random(1), ShareNumbers(), dict[str, int]()
    for _ in range(300):
        stay = dice.choices([*before] or ["n0"], k=50)
        named = {*stay, *(f"n{dice.randrange(2000)}" for _ in range(dice.randrange(461)))}
        found = numbers.of(named)
        assert found.keys() == named
        assert len({*found.values()}) == len(found)
        assert all(0 <= number < NUMBERS for number in found.values())
        assert all(found[name] == before[name] for name in found.keys() & before.keys())
        before = dict(found)
