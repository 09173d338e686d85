from collections.abc import Iterator

import pytest

from latencyprobe.errors import DirectoryError
from latencyprobe.plan import Identity, IdentityAnswer
from latencyprobe_agent.directory import peers as module
from latencyprobe_agent.directory.client import FakeDirectory
from latencyprobe_agent.directory.peers import Peers
from tests.support.waiting import wait_until

ONE, OTHER = "10.0.0.1", "10.0.0.2"


def owned_by(service: str) -> dict[str, Identity]:
    return {address: Identity(address, service=service) for address in (ONE, OTHER)}


@pytest.fixture
def directory() -> FakeDirectory:
    made = FakeDirectory()
    made.owners = owned_by("cart")
    return made


@pytest.fixture
def peers(directory: FakeDirectory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Peers]:
    """Peers that nobody has started yet."""
    monkeypatch.setattr(module, "_RETRY_S", 0.01)
    made = Peers(directory.identities)
    yield made
    made.stop()


def resolved(peers: Peers, address: str) -> Identity:
    return wait_until(lambda: peers.resolve([address]).get(address), f"the owner of {address}")


def test_an_unknown_address_is_asked_once_and_then_known(directory: FakeDirectory, peers: Peers) -> None:
    peers.start()
    assert peers.resolve([ONE]) == {}
    assert resolved(peers, ONE).service == "cart"
    peers.stop()
    assert directory.asked == [(ONE,)]


def test_what_is_wanted_at_one_time_is_one_question(directory: FakeDirectory, peers: Peers) -> None:
    peers.resolve(f"10.0.0.{i}" for i in range(100))
    peers.start()
    resolved(peers, ONE)
    peers.stop()
    assert [len(batch) for batch in directory.asked] == [100]


def test_an_answer_ends_with_its_validity(directory: FakeDirectory, peers: Peers) -> None:
    directory.valid_s = 0.05
    peers.start()
    assert resolved(peers, ONE).service == "cart"
    directory.owners = owned_by("new owner")
    wait_until(lambda: [one.service for one in peers.resolve([ONE]).values()] == ["new owner"], "the new owner")


def test_a_new_generation_forgets_every_earlier_answer(directory: FakeDirectory, peers: Peers) -> None:
    directory.valid_s = 3600
    peers.start()
    resolved(peers, ONE)
    directory.generation, directory.owners = 2, owned_by("new owner")
    resolved(peers, OTHER)
    assert resolved(peers, ONE).service == "new owner"


def test_where_the_stream_tells_a_new_generation_forgets_nothing(directory: FakeDirectory, peers: Peers) -> None:
    directory.valid_s, directory.told = 3600, True
    peers.start()
    resolved(peers, ONE)
    directory.generation, directory.owners = 2, owned_by("new owner")
    assert resolved(peers, OTHER).service == "new owner"
    assert resolved(peers, ONE).service == "cart"


@pytest.mark.parametrize("forgotten", [(ONE,), None], ids=["one address", "all"])
def test_what_is_to_be_forgotten_is_asked_again(
    directory: FakeDirectory, peers: Peers, forgotten: tuple[str, ...] | None
) -> None:
    directory.valid_s, directory.told = 3600, True
    peers.start()
    resolved(peers, ONE)
    directory.owners = owned_by("new owner")
    peers.forget(forgotten)
    assert peers.resolve([ONE]) == {}
    assert resolved(peers, ONE).service == "new owner"


@pytest.mark.parametrize("forgotten", [(ONE,), None], ids=["one address", "all"])
def test_an_answer_that_was_on_its_way_is_not_taken_for_what_is_to_be_forgotten(
    directory: FakeDirectory, forgotten: tuple[str, ...] | None
) -> None:
    directory.valid_s, directory.told = 3600, True

    def answer(addresses: tuple[str, ...]) -> IdentityAnswer:
        found = directory.identities(addresses)
        if len(directory.asked) == 1:
            directory.owners = owned_by("new owner")
            asking.forget(forgotten)
        return found

    asking = Peers(answer)
    asking.resolve([ONE])
    asking.start()
    try:
        assert resolved(asking, ONE).service == "new owner"
    finally:
        asking.stop()


def test_validity_counts_from_the_question(
    directory: FakeDirectory, peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory remembers who knows an address from when it answers."""
    directory.valid_s, now_s = 10.0, [100.0]
    monkeypatch.setattr(module, "_now_s", lambda: now_s[0])
    ask = directory.identities

    def late(addresses: tuple[str, ...]) -> IdentityAnswer:
        now_s[0] = 109.0
        return ask(addresses)

    peers._take((ONE,), late((ONE,)), 100.0)
    assert ONE in peers.resolve([ONE])
    now_s[0] = 110.0
    assert peers.resolve([ONE]) == {}


def test_who_does_not_mind_has_an_answer_for_some_time_longer_but_never_what_is_to_be_forgotten(
    directory: FakeDirectory, peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory.valid_s, now_s = 10.0, [100.0]
    monkeypatch.setattr(module, "_now_s", lambda: now_s[0])
    peers._take((ONE, OTHER), directory.identities((ONE, OTHER)), 100.0)
    now_s[0] = 139.0
    assert peers.resolve([ONE], late_s=30.0)[ONE].service == "cart"
    assert peers._unanswered.keys() == {ONE}, "it is asked for all the same"
    peers.forget([ONE])
    assert peers.resolve([ONE, OTHER], late_s=30.0).keys() == {OTHER}
    now_s[0] = 140.0
    assert peers.resolve([OTHER], late_s=30.0) == {}


def test_who_comes_where_nobody_was_is_asked_for_at_once_and_has_been_there_since_then(
    directory: FakeDirectory, peers: Peers
) -> None:
    """A pod talks a second or two before its address is known, and may have ended before the next turn."""
    directory.valid_s, directory.told, directory.owners = 3600, True, {}
    peers.start()
    assert resolved(peers, ONE) == Identity(ONE)
    vacant_s = module._now_s()
    directory.owners = owned_by("cart")
    peers.forget([ONE])
    wait_until(lambda: len(directory.asked) == 2, "a question that nobody else has asked for")
    wait_until(lambda: not peers._unanswered, "its answer")
    peers.forget([ONE])
    had = peers.past_owners([ONE])[ONE]
    assert had.identity.service == "cart"
    assert had.since_s < vacant_s < had.until_s


def test_while_the_stream_says_nothing_an_answer_ends_as_early_as_that_of_an_operator_without_one(
    directory: FakeDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has the address now may have changed, and nobody have told."""
    now_s, silent_s = [100.0], [0.0]
    monkeypatch.setattr(module, "_now_s", lambda: now_s[0])
    peers = Peers(directory.identities, silent_s=lambda: silent_s[0])
    directory.valid_s = 60.0
    peers._take((ONE,), directory.identities((ONE,)), 100.0)
    now_s[0] = 140.0
    assert peers.resolve([ONE])[ONE].service == "cart"
    silent_s[0] = 30.0
    assert peers.resolve([ONE]) == {}
    assert peers._unanswered.keys() == {ONE}
    peers._take((ONE,), directory.identities((ONE,)), 140.0)
    assert peers.resolve([ONE])[ONE].service == "cart", "a post was answered"
    now_s[0] = 156.0
    assert peers.resolve([ONE]) == {}


def test_a_directory_that_is_away_is_asked_again(directory: FakeDirectory, peers: Peers) -> None:
    directory.error = DirectoryError("away")
    peers.start()
    peers.resolve([ONE])
    wait_until(lambda: directory.asked, "a question")
    directory.error = None
    assert resolved(peers, ONE).service == "cart"


def test_standalone_every_address_is_nameless_at_once() -> None:
    assert {ONE: Identity(ONE)} == Peers(None).resolve([ONE])
