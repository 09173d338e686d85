"""How many owners of addresses a node learns."""

import pytest

from latencyprobe_operator.directory.lookups import AT_ONCE, NEW_AT_ONCE, NEW_PER_S, OWN_AT_ONCE, Lookups
from tests.latencyprobe_operator.directory_world import Play, World


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def address(number: int) -> str:
    return f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"


def may_learn(lookups: Lookups, node: str, one: str, namespace: str = "elsewhere") -> bool:
    return lookups.may_learn(node, one, namespace, {"shop", "evil"})


def test_an_agent_that_asks_for_the_whole_cluster_learns_a_small_part_of_it(caplog: pytest.LogCaptureFixture) -> None:
    lookups = Lookups(Clock())
    learned = sum(may_learn(lookups, "n1", address(number)) for number in range(150_000))
    assert NEW_AT_ONCE <= learned < 0.1 * 150_000
    assert lookups.counts["too_many"] == 150_000 - learned
    assert [r.getMessage().split(":")[0] for r in caplog.records] == ["n1"], "said once"


def test_who_asks_for_too_many_is_told_to_wait_and_keeps_nobody_out(play: Play) -> None:
    body = {"addresses": ["10.0.0.1"] * 1_000}

    async def scene(it: World) -> None:
        answers = [(await it.call("POST", "/v1/identities", body))[0] for _ in range(AT_ONCE // 1_000)]
        assert set(answers) == {200}
        for _ in range(50):
            status, why = await it.call("POST", "/v1/identities", body)
            if status != 200:
                break
        assert (status, why) == (429, b'{"error": "more than 3000 addresses a second: slow down"}')
        assert (await it.call("POST", "/v1/identities", body, "token-n2"))[0] == 200

    play(scene)


def test_who_was_told_is_told_again_however_often_and_whatever_others_ask() -> None:
    lookups = Lookups(Clock())
    own = [address(number) for number in range(1_000)]
    assert all(may_learn(lookups, "n1", one) for one in own)
    for number in range(100_000, 150_000):
        may_learn(lookups, "n2", address(number))
    for _ in range(10):
        assert all(may_learn(lookups, "n1", one) for one in own)


def test_a_nodes_new_peers_are_told_as_they_come() -> None:
    clock = Clock()
    lookups = Lookups(clock)
    for second in range(3_000):  # three times what is told at once
        clock.now_s = second
        assert all(may_learn(lookups, "n1", address(second * NEW_PER_S + i)) for i in range(NEW_PER_S // 2))
    assert lookups.counts["too_many"] == 0


def test_what_a_neighbour_dials_takes_no_name_from_steady_peers() -> None:
    clock = Clock()
    lookups = Lookups(clock)
    steady, dialled = [address(number) for number in range(100)], iter(range(100_000, 1_000_000))
    for clock.now_s in range(0, 3_600, 15):
        assert all(may_learn(lookups, "n1", one) for one in steady)
        for _ in range(20 * 15):
            may_learn(lookups, "n1", address(next(dialled)))
    assert lookups.counts["too_many"] > 10_000


@pytest.mark.long
def test_each_namespace_that_a_node_measures_has_room_of_its_own_for_new_peers() -> None:
    clock = Clock()
    lookups = Lookups(clock)
    for number in range(100_000, 200_000):
        may_learn(lookups, "n1", address(number))
        may_learn(lookups, "n1", address(number + 100_000), "evil")
    assert all(may_learn(lookups, "n1", address(number), "shop") for number in range(OWN_AT_ONCE))
    others = [may_learn(lookups, "n1", address(number), "shop") for number in range(50_000, 50_200)]
    assert others.count(True) < 60, "by chance, one in twelve"
    clock.now_s = 1.0
    for number in range(300_000, 300_100):
        may_learn(lookups, "n1", address(number))
    assert may_learn(lookups, "n1", address(50_001), "shop")
