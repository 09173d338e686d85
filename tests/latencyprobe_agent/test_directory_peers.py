import threading

from latencyprobe.errors import DirectoryError
from latencyprobe.plan import Identity, IdentityAnswer
from latencyprobe_agent.directory.peers import Peers
from tests.support.waiting import wait_until


class Owners:
    """A directory's answers from a table."""

    def __init__(self, *, generation: int = 1, valid_s: float = 15.0) -> None:
        self.service = "cart"
        self.generation = generation
        self.valid_s = valid_s
        self.asked: list[tuple[str, ...]] = []
        self.away = threading.Event()

    def __call__(self, addresses: tuple[str, ...]) -> IdentityAnswer:
        self.asked.append(addresses)
        if self.away.is_set():
            raise DirectoryError("away")
        identities = tuple(Identity(address, service=self.service) for address in addresses)
        return IdentityAnswer(identities, self.generation, self.valid_s)


def resolved(peers: Peers, address: str) -> Identity:
    wait_until(lambda: address in peers.resolve([address]))
    return peers.resolve([address])[address]


def test_an_unknown_address_is_asked_once_and_then_known() -> None:
    owners = Owners()
    peers = Peers(owners)
    peers.start()
    assert peers.resolve(["10.0.0.1"]) == {}
    assert resolved(peers, "10.0.0.1").service == "cart"
    peers.stop()
    assert owners.asked == [("10.0.0.1",)]


def test_what_is_wanted_at_one_time_is_one_question() -> None:
    owners = Owners()
    peers = Peers(owners)
    peers.resolve(f"10.0.0.{i}" for i in range(100))
    peers.start()
    wait_until(lambda: len(peers.resolve(["10.0.0.1"])) == 1)
    peers.stop()
    assert [len(batch) for batch in owners.asked] == [100]


def test_an_answer_ends_with_its_validity() -> None:
    owners = Owners(valid_s=0.05)
    peers = Peers(owners)
    peers.start()
    assert resolved(peers, "10.0.0.1").service == "cart"
    owners.service = "new owner"
    wait_until(lambda: [i.service for i in peers.resolve(["10.0.0.1"]).values()] == ["new owner"])
    peers.stop()


def test_a_new_generation_forgets_every_earlier_answer() -> None:
    owners = Owners(valid_s=3600)
    peers = Peers(owners)
    peers.start()
    resolved(peers, "10.0.0.1")
    owners.generation, owners.service = 2, "new owner"
    resolved(peers, "10.0.0.2")
    assert resolved(peers, "10.0.0.1").service == "new owner"
    peers.stop()


def test_a_directory_that_is_away_is_asked_again() -> None:
    owners = Owners()
    owners.away.set()
    peers = Peers(owners)
    peers.start()
    peers.resolve(["10.0.0.1"])
    wait_until(lambda: bool(owners.asked))
    owners.away.clear()
    assert resolved(peers, "10.0.0.1").service == "cart"
    peers.stop()


def test_standalone_every_address_is_nameless_at_once() -> None:
    assert {"10.0.0.1": Identity("10.0.0.1")} == Peers(None).resolve(["10.0.0.1"])
