"""The switchboard between agents: who is asked, who may answer, and that every key ends in a count."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latencyprobe.plan import Ask, RemoteJoinMessage, ServerHalf
from latencyprobe_operator.directory import remote_join
from latencyprobe_operator.directory.remote_join import Switchboard
from latencyprobe_operator.plan.targets import finished

KEYS = [f"{i:032x}" for i in range(20_000)]
NODES_AT = {"10.0.0.1": {"n1"}, "10.0.0.2": {"n2"}, "10.96.0.7": {"n1", "n2", "n3"}, "10.96.0.8": {"n4", "n5"}}


class Net:
    """A switchboard with connected nodes, a clock, and whom it woke."""

    def __init__(self, *connected: str) -> None:
        self.now_s = 0.0
        self.woken: list[str] = []
        nodes_at = NODES_AT | {"10.96.0.9": {f"m{i}" for i in range(remote_join.MAX_NODES + 1)}}
        self.looked_up: list[str] = []

        def looked_up(address: str) -> set[str]:
            self.looked_up.append(address)
            return nodes_at.get(address, set())

        self.board = Switchboard(looked_up, self.woken.append, lambda: self.now_s)
        for node in connected:
            self.board.connected(node)

    def ask(self, node: str, asks: tuple[Ask, ...]) -> dict[str, str]:
        return finished(self.board.ask(node, asks))

    def taken(self, node: str) -> RemoteJoinMessage:
        return self.board.take(node) or RemoteJoinMessage()


@pytest.fixture
def net() -> Net:
    return Net("n1", "n2", "n3")


def half(key: str) -> ServerHalf:
    return ServerHalf(key, (1, 2, 3, 4), service="cart")


def test_the_nodes_of_the_address_are_asked_and_the_answer_goes_to_who_asked(net: Net) -> None:
    assert net.ask("n3", (Ask((KEYS[0],), "10.96.0.7", spans=True),)) == {}
    assert sorted(net.woken) == ["n1", "n2"]
    assert net.taken("n1") == net.taken("n2") == RemoteJoinMessage((Ask((KEYS[0],), spans=True),))
    net.board.answer("n2", (half(KEYS[0]),))
    assert net.taken("n3") == RemoteJoinMessage(halves=(half(KEYS[0]),))
    assert net.board.take("n3") is None
    assert net.board.counts == {"asked": 1, "answered": 1}


def test_only_a_node_that_was_asked_answers_and_only_once(net: Net) -> None:
    net.ask("n3", (Ask((KEYS[0],), "10.0.0.1"),))
    net.board.answer("n2", (half(KEYS[0]),))
    assert net.board.take("n3") is None
    for _ in range(2):
        net.board.answer("n1", (half(KEYS[0]), half(KEYS[1])))
    assert net.taken("n3").halves == (half(KEYS[0]),)
    assert net.board.counts["unasked"] == 1 + 1 + 2


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("192.0.2.9", "unknown_peer"),
        ("", "unknown_peer"),
        ("10.96.0.8", "no_agent"),
        ("10.0.0.2", "own_node"),
        ("10.96.0.9", "too_many_nodes"),
    ],
)
def test_a_key_that_nobody_can_be_asked_for_is_refused_with_the_reason(net: Net, address: str, reason: str) -> None:
    for i in range(remote_join.MAX_NODES + 1):
        net.board.connected(f"m{i}")
    assert net.ask("n2", (Ask((KEYS[0],), address),)) == {KEYS[0]: reason}
    assert net.board.counts[f"refused_{reason}"] == 1
    assert net.woken == []


def test_a_key_under_way_is_not_asked_again_and_ends_unanswered(net: Net) -> None:
    ask = (Ask((KEYS[0],), "10.0.0.1"),)
    assert net.ask("n2", ask) == {}
    assert net.ask("n3", ask) == {KEYS[0]: "asked_already"}
    net.now_s = remote_join.ANSWER_S
    net.board.answer("n1", (half(KEYS[0]),))
    assert (net.board.counts["unanswered"], net.board.counts["unasked"]) == (1, 1)
    assert net.ask("n3", ask) == {}


def test_an_agent_that_asks_too_much_is_refused_but_no_other(net: Net) -> None:
    for start in range(0, 4000, 1000):
        refused = net.ask("n2", (Ask(tuple(KEYS[start : start + 1000]), "10.0.0.1"),))
        net.taken("n1")
    assert set(refused.values()) == {"too_fast"}
    assert net.board.counts["asked"] == remote_join.KEYS_AT_ONCE
    assert net.ask("n3", (Ask((KEYS[9000],), "10.0.0.1"),)) == {}


def test_however_often_an_agent_asks_a_service_is_looked_up_once_in_a_while(net: Net) -> None:
    """One may have thousands of pods."""
    asks = [Ask((key,), "10.96.0.7") for key in KEYS[:2000]]
    for start in (0, 1000):
        net.ask("n3", tuple(asks[start : start + 1000]))
        net.taken("n1"), net.taken("n2")
    assert net.looked_up == ["10.96.0.7"]
    net.now_s += remote_join.NODES_S
    net.ask("n3", tuple(asks[:1]))
    assert net.looked_up == ["10.96.0.7"] * 2


def test_for_who_may_ask_for_no_more_keys_nothing_is_looked_up(net: Net) -> None:
    net.ask("n2", tuple(Ask((), f"10.1.0.{number}") for number in range(200)))
    assert net.looked_up == []
    net.ask("n2", (Ask(tuple(KEYS[: remote_join.KEYS_AT_ONCE]), "10.0.0.1"),))
    refused = net.ask("n2", (Ask((KEYS[5000],), "10.96.0.7"),))
    assert refused == {KEYS[5000]: "too_fast"}
    assert net.looked_up == ["10.0.0.1"]


def test_that_nobody_is_at_an_address_is_looked_up_once_in_a_while(net: Net) -> None:
    """A Service without pods may have thousands of EndpointSlices."""
    for start in (0, 1000):
        net.ask("n3", tuple(Ask((key,), "10.96.0.10") for key in KEYS[start : start + 1000]))
    assert net.looked_up == ["10.96.0.10"]
    net.now_s += remote_join.NODES_S
    net.ask("n3", (Ask((KEYS[0],), "10.96.0.10"),))
    assert net.looked_up == ["10.96.0.10"] * 2


def test_addresses_whose_nodes_are_known_are_bounded(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_join, "MAX_KNOWN", 3)
    for _ in range(2):
        net.ask("n3", tuple(Ask((KEYS[number],), f"10.1.0.{number}") for number in range(5)))
    assert len(net.board._nodes_at._known) == 3
    assert net.looked_up == [f"10.1.0.{number}" for number in (0, 1, 2, 3, 4, 3, 4)]


def test_each_question_counts_whatever_becomes_of_it(net: Net) -> None:
    for start in range(0, remote_join.ASKED_AT_ONCE, 1000):
        refused = net.ask("n3", tuple(Ask((key,), "192.0.2.9") for key in KEYS[start : start + 1000]))
        assert set(refused.values()) == {"unknown_peer"}
    net.looked_up.clear()
    assert net.ask("n3", (Ask((KEYS[0],), "10.0.0.1"),)) == {KEYS[0]: "too_fast"}
    assert net.looked_up == []
    assert net.ask("n2", (Ask((KEYS[0],), "10.0.0.1"),)) == {}


def test_others_run_between_two_questions(net: Net) -> None:
    asking = net.board.ask("n3", (Ask((KEYS[0],), "10.0.0.1"), Ask((KEYS[1],), "10.0.0.1")))
    next(asking)
    assert net.taken("n1").asks == (Ask((KEYS[0],)),)
    assert (finished(asking), net.taken("n1").asks) == ({}, (Ask((KEYS[1],)),))


def test_a_node_that_does_not_read_its_stream_gets_no_more(net: Net) -> None:
    refused = {}
    for start in range(0, 3000, 1000):
        refused |= net.ask(f"a{start}", (Ask(tuple(KEYS[start : start + 1000]), "10.0.0.1"),))
    assert set(refused.values()) == {"busy"}
    assert sum(len(ask.keys) for ask in net.taken("n1").asks) == remote_join.MAX_QUEUED


def test_keys_under_way_are_bounded_for_all_together(net: Net) -> None:
    for start in range(0, remote_join.MAX_PENDING, 1000):
        net.ask(f"a{start}", (Ask(tuple(KEYS[start : start + 1000]), "10.0.0.1"),))
        net.taken("n1")
    assert net.ask("n2", (Ask(("f" * 32,), "10.0.0.1"),)) == {"f" * 32: "busy"}


def test_what_waits_for_a_stream_that_ended_is_forgotten(net: Net) -> None:
    net.ask("n2", (Ask((KEYS[0],), "10.0.0.1"),))
    net.board.disconnected("n1")
    net.board.connected("n1")
    assert net.board.take("n1") is None
    net.board.disconnected("n2")
    net.board.answer("n1", (half(KEYS[0]),))
    assert net.board.counts["undelivered"] == 1


@given(
    st.lists(st.tuples(st.sampled_from(["ask", "answer", "wait"]), st.integers(0, 5), st.integers(1, 3)), max_size=60)
)
def test_every_key_that_was_asked_ends_once(steps: list[tuple[str, int, int]]) -> None:
    net = Net("n1", "n2", "n3")
    for step, key, node in steps:
        if step == "ask":
            net.ask(f"n{node}", (Ask((KEYS[key],), "10.96.0.7"),))
        elif step == "answer":
            net.board.answer(f"n{node}", (half(KEYS[key]),))
        else:
            net.now_s += 2.0
    net.now_s += 2 * remote_join.ANSWER_S
    net.board.answer("n1", ())
    counts = net.board.counts
    assert counts["asked"] == counts["answered"] + counts["undelivered"] + counts["unanswered"]
