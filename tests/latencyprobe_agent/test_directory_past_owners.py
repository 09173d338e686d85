"""directory/past_owners.py, as `Peers` uses it."""

import pytest

from latencyprobe.plan import Identity, IdentityAnswer, PastIdentity
from latencyprobe_agent.directory import past_owners
from latencyprobe_agent.directory import peers as module
from latencyprobe_agent.directory.client import FakeDirectory
from latencyprobe_agent.directory.past_owners import Ownership
from latencyprobe_agent.directory.peers import Peers

ONE, OTHER = "10.0.0.1", "10.0.0.2"


@pytest.fixture
def peers() -> Peers:
    """Peers that nobody starts."""
    return Peers(FakeDirectory().identities)


def test_who_had_an_address_is_known_for_the_time_for_which_it_was_certain(
    peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [100.0]
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


def test_of_addresses_that_changed_hands_the_latest_are_kept(peers: Peers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past_owners, "_MOST", 2)
    three = tuple(Identity(f"10.0.0.{n}", service="cart") for n in range(3))
    peers._take((), IdentityAnswer(three, 1, 10.0, told=True), module._now_s())
    peers.forget([one.address for one in three])
    assert peers.past_owners(one.address for one in three).keys() == {"10.0.0.1", "10.0.0.2"}
