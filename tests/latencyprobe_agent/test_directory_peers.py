from collections.abc import Iterator

import pytest

from latencyprobe.errors import DirectoryError
from latencyprobe.plan import Identity
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


def test_a_directory_that_is_away_is_asked_again(directory: FakeDirectory, peers: Peers) -> None:
    directory.error = DirectoryError("away")
    peers.start()
    peers.resolve([ONE])
    wait_until(lambda: directory.asked, "a question")
    directory.error = None
    assert resolved(peers, ONE).service == "cart"


def test_standalone_every_address_is_nameless_at_once() -> None:
    assert {ONE: Identity(ONE)} == Peers(None).resolve([ONE])
