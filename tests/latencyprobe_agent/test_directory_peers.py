from collections.abc import Iterator

import pytest

from latencyprobe.errors import DirectoryError
from latencyprobe.plan import Identity, IdentityAnswer, PastIdentity
from latencyprobe_agent.directory import peers as module
from latencyprobe_agent.directory.client import FakeDirectory
from latencyprobe_agent.directory.peers import Ownership, Peers
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


def test_who_had_an_address_is_known_for_the_time_for_which_it_was_certain(
    directory: FakeDirectory, peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory.valid_s, directory.told, now_s = 10.0, True, [100.0]
    monkeypatch.setattr(module, "_now_s", lambda: now_s[0])
    cart, nobody = Identity(ONE, service="cart"), Identity(ONE)

    def answered(identity: Identity, at_s: float) -> None:
        now_s[0] = at_s
        peers._take((ONE,), IdentityAnswer((identity,), 1, 10.0, told=True), at_s)

    answered(cart, 100.0)
    answered(cart, 109.0)
    assert peers.past_owners([ONE, OTHER]) == {}, "it has not changed hands"
    now_s[0] = 112.0
    peers.forget([ONE])
    assert peers.past_owners([ONE]) == {ONE: Ownership(cart, 100.0, 112.0, gone_s=112.0)}, "until the news"
    answered(nobody, 113.0)
    peers.forget([ONE])
    assert peers.past_owners([ONE])[ONE].identity == cart, "that nobody had it is no name"
    answered(cart, 120.0)
    answered(cart, 140.0)
    peers.forget([ONE])
    assert peers.past_owners([ONE]) == {ONE: Ownership(cart, 140.0, 140.0, gone_s=140.0)}, "not while unasked"
    answered(other := Identity(ONE, service="other"), 141.0)
    now_s[0] = 145.0
    peers.forget(None)
    had = Ownership(other, 141.0, 141.0, gone_s=145.0, after_s=140.0)
    assert peers.past_owners([ONE]) == {ONE: had}, "it may have changed before the new stream began"


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


def test_who_has_gone_before_anybody_asked_is_known_for_as_long_as_is_sure(
    peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [100.0]
    monkeypatch.setattr(module, "_now_s", lambda: now_s[0])
    cart, other = (Identity(ONE, service=name, uid=name) for name in ("cart", "other"))

    def answered(asked_s: float, *past: PastIdentity) -> None:
        now_s[0] = asked_s + 0.5
        peers._take((ONE,), IdentityAnswer((Identity(ONE),), 1, 10.0, True, past), asked_s)

    answered(100.0, PastIdentity(cart, 8.0, 2.0))
    assert peers.past_owners([ONE]) == {ONE: Ownership(cart, 92.5, 98.0, gone_s=98.5)}, "whenever it was answered"
    answered(104.0, PastIdentity(cart, 12.0, 5.9))
    assert peers.past_owners([ONE]) == {ONE: Ownership(cart, 92.5, 98.1, gone_s=98.5)}, "the same, told again"
    answered(105.0, PastIdentity(other, 9.0, 8.0))
    assert peers.past_owners([ONE])[ONE].identity == cart, "the other one left before"
    answered(106.0, PastIdentity(other, 4.0, 1.0))
    assert peers.past_owners([ONE]) == {ONE: Ownership(other, 102.5, 105.0, gone_s=105.5, after_s=98.5)}


def test_who_comes_where_nobody_was_has_not_been_there_while_another_was(
    peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [100.0]
    monkeypatch.setattr(module, "_now_s", lambda: now_s[0])
    nobody, web, cart = Identity(ONE), Identity(ONE, pod="web", uid="web"), Identity(ONE, pod="cart", uid="cart")
    peers._take((ONE,), IdentityAnswer((nobody,), 1, 60.0, told=True), 100.0)
    now_s[0] = 103.0
    peers.forget([ONE])
    now_s[0] = 104.0
    peers._take((ONE,), IdentityAnswer((cart,), 1, 60.0, True, (PastIdentity(web, 5.0, 1.5),)), 103.5)
    assert peers._known[ONE].since_s == 102.5
    assert peers.past_owners([ONE]) == {ONE: Ownership(web, 99.0, 102.0, gone_s=102.5)}


def test_who_alone_has_had_an_address_is_told_also_when_he_has_gone_and_nobody_where_there_were_two(
    peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [100.0]
    monkeypatch.setattr(module, "_now_s", lambda: now_s[0])
    nobody, web, cart = Identity(ONE), Identity(ONE, pod="web", uid="web"), Identity(ONE, pod="cart", uid="cart")

    def answered(at_s: float, identity: Identity) -> None:
        now_s[0] = at_s
        peers.forget([ONE])
        peers._take((ONE,), IdentityAnswer((identity,), 1, 60.0, told=True), at_s)

    answered(100.0, web)
    assert peers.had_since([ONE, OTHER], 0.0) == {ONE: web}, "nobody is known to have had it before"
    now_s[0] = 109.0
    peers.forget([ONE])
    assert peers.had_since([ONE], 105.0) == {}, "whoever has it now is not known yet"
    answered(110.0, nobody)
    assert peers.had_since([ONE], 105.0) == {ONE: web}, "nobody else has had it"
    assert peers.had_since([ONE], 109.5) == {ONE: nobody}
    answered(120.0, cart)
    assert peers.had_since([ONE], 105.0) == {}, "two have"
    assert peers.had_since([ONE], 109.5) == {ONE: cart}
    answered(130.0, nobody)
    assert peers.had_since([ONE], 105.0) == {}
    assert peers.had_since([ONE], 115.0) == {ONE: cart}


def test_who_has_an_address_after_a_new_stream_began_is_told_for_the_time_before_only_if_he_had_it_then(
    peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [100.0]
    monkeypatch.setattr(module, "_now_s", lambda: now_s[0])
    web, cart = Identity(ONE, pod="web", uid="web"), Identity(ONE, pod="cart", uid="cart")
    peers._take((ONE,), IdentityAnswer((web,), 1, 60.0, told=True), 100.0)
    now_s[0] = 110.0
    peers.forget(None)
    peers._take((ONE,), IdentityAnswer((web,), 1, 60.0, told=True), 110.5)
    assert peers.had_since([ONE], 105.0) == {ONE: web}
    peers.forget(None)
    peers._take((ONE,), IdentityAnswer((cart,), 1, 60.0, told=True), 110.9)
    assert peers.had_since([ONE], 105.0) == {}, "nobody has told since when"
    assert peers.had_since([ONE], 110.1) == {ONE: cart}


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


def test_of_addresses_that_changed_hands_the_latest_are_kept(peers: Peers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PAST", 2)
    three = tuple(Identity(f"10.0.0.{n}", service="cart") for n in range(3))
    peers._take((), IdentityAnswer(three, 1, 10.0, told=True), module._now_s())
    peers.forget([one.address for one in three])
    assert peers.past_owners(one.address for one in three).keys() == {"10.0.0.1", "10.0.0.2"}


def test_a_directory_that_is_away_is_asked_again(directory: FakeDirectory, peers: Peers) -> None:
    directory.error = DirectoryError("away")
    peers.start()
    peers.resolve([ONE])
    wait_until(lambda: directory.asked, "a question")
    directory.error = None
    assert resolved(peers, ONE).service == "cart"


def test_standalone_every_address_is_nameless_at_once() -> None:
    assert {ONE: Identity(ONE)} == Peers(None).resolve([ONE])
