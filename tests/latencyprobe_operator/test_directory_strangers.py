"""Tokens that are refused: bounded, and no bound to those that are good."""

import asyncio
from collections import Counter

import pytest

from latencyprobe_operator.cluster.calls import Reviewed
from latencyprobe_operator.directory.auth import NODE_CLAIM, Authenticator
from latencyprobe_operator.directory.limits import Refused
from tests.latencyprobe_operator.directory_world import AGENT
from tests.latencyprobe_operator.tokens import AGENTS_ADDRESS, ON_N1, Clock, authenticator, token, token_of


def guess(auth: Authenticator, source: str, times: int) -> Counter[int]:
    """The answers to so many tokens that are not valid."""
    statuses: Counter[int] = Counter()
    for number in range(times):
        with pytest.raises(Refused) as refused:
            asyncio.run(auth.agent(f"guess-{number}", source))
        statuses[refused.value.status] += 1
    return statuses


def test_strangers_cannot_make_the_api_server_review_without_end() -> None:
    auth, reviewer = authenticator({})
    assert guess(auth, "10.0.0.9", 30) == {401: 20, 429: 10}
    for one in range(100):
        guess(auth, f"10.0.1.{one}", 3)
    assert reviewer.calls == 200


@pytest.mark.long
def test_strangers_keep_no_agent_out() -> None:
    """However many tokens they send from however many addresses: agents are known by the addresses of their pods."""
    auth, _ = authenticator({"t": ON_N1})
    for one in range(100):
        guess(auth, f"10.0.1.{one}", 30)
    assert asyncio.run(auth.agent("t", AGENTS_ADDRESS)).node == "n1"
    guess(auth, AGENTS_ADDRESS, 30)
    with pytest.raises(Refused, match="too many refused tokens"):
        asyncio.run(auth.agent("t2", AGENTS_ADDRESS))


def test_a_token_of_another_account_counts_as_refused() -> None:
    auth, reviewer = authenticator({f"guess-{i}": Reviewed("somebody") for i in range(30)})
    assert guess(auth, "10.0.0.9", 30) == {403: 20, 429: 10}
    assert reviewer.calls == 20


def fill(auth: Authenticator) -> None:
    """Send so many tokens that are not valid, from so many addresses, that no stranger is reviewed any more."""
    for one in range(100):
        guess(auth, f"10.0.1.{one}", 30)
    assert guess(auth, "10.0.2.1", 1) == {429: 1}


@pytest.mark.long
def test_a_token_that_was_found_good_has_no_bound_beside_strangers() -> None:
    clock, mine = Clock(), token(3600)
    auth, _ = authenticator({mine: ON_N1, "api-t": Reviewed("prometheus")}, clock)
    asyncio.run(auth.metrics_reader("api-t", "192.0.2.1"))
    asyncio.run(auth.agent(mine, "192.0.2.2"))
    clock.now += 3600
    fill(auth)
    for _ in range(100):
        asyncio.run(auth.metrics_reader("api-t", "192.0.2.1"))
    assert asyncio.run(auth.agent(mine, "192.0.2.2")).node == "n1", "it is asked for again, as an hour is over"


@pytest.mark.long
def test_a_token_that_is_good_no_more_is_a_strangers() -> None:
    auth, reviewer = authenticator({"api-t": Reviewed("prometheus")})
    asyncio.run(auth.metrics_reader("api-t", "192.0.2.1"))
    reviewer.users.clear()
    fill(auth)
    for status in (401, 429):
        with pytest.raises(Refused) as refused:
            asyncio.run(auth.metrics_reader("api-t", "192.0.2.1"))
        assert refused.value.status == status


@pytest.mark.long
def test_an_agent_whose_address_is_nobodys_is_known_by_its_pod() -> None:
    """It has just started, or its address is translated on the way."""
    mine, forged = token_of("agents", "agent-n2", "uid-2"), token_of("agents", "agent-n2", "uid-of-another")
    auth, _ = authenticator({mine: Reviewed(AGENT, extra={NODE_CLAIM: ["n2"]})})
    fill(auth)
    assert asyncio.run(auth.agent(mine, "192.0.2.7")).node == "n2"
    with pytest.raises(Refused, match="too many refused tokens"):
        asyncio.run(auth.agent(forged, "192.0.2.7"))


@pytest.mark.long
def test_the_first_token_of_a_pod_is_held_up_by_none_that_names_no_pod() -> None:
    mine = token_of("monitoring", "prometheus-0", "uid-3", "api-")
    auth, _ = authenticator({mine: Reviewed("prometheus")})
    fill(auth)
    asyncio.run(auth.metrics_reader(mine, "10.0.1.9"))


def test_pods_of_one_namespace_hold_up_none_of_another() -> None:
    """They have tokens of their own, and send these without end."""
    mine = token_of("monitoring", "prometheus-0", "uid-3", "api-")
    auth, reviewer = authenticator({mine: Reviewed("prometheus")})
    for number in range(100):
        with pytest.raises(Refused):
            asyncio.run(auth.agent(token_of("evil", f"pod-{number}", f"uid-{number}"), f"10.0.1.{number}"))
    assert reviewer.calls == 20
    asyncio.run(auth.metrics_reader(mine, "10.0.1.9"))


def test_tokens_that_come_at_once_are_bounded_alike() -> None:
    auth, reviewer = authenticator({})
    real = reviewer.review_token

    async def slow(*asked: str) -> Reviewed | None:
        await asyncio.sleep(0)
        return await real(*asked)

    reviewer.review_token = slow  # type: ignore[method-assign]

    async def scene() -> None:
        tried = (auth.agent(f"guess-{number}", "10.0.0.9") for number in range(100))
        await asyncio.gather(*tried, return_exceptions=True)

    asyncio.run(scene())
    assert reviewer.calls == 20


def test_tokens_that_are_good_cost_nothing() -> None:
    """Of agents whose addresses are all translated to one, say."""
    tokens = {f"t{number}": Reviewed(AGENT, extra={NODE_CLAIM: [f"n{number}"]}) for number in range(1_000)}
    auth, reviewer = authenticator(tokens)
    for one in tokens:
        asyncio.run(auth.agent(one, "192.0.2.7"))
    reviewer.away = True
    for number in range(100):
        with pytest.raises(Refused, match="cannot be asked"):
            asyncio.run(auth.agent(f"new-{number}", "192.0.2.7"))
