"""Tokens: whose they are, for which node, and for how long that is believed."""

import asyncio
from typing import Any

import pytest

from latencyprobe_operator.cluster.calls import Reviewed
from latencyprobe_operator.directory.auth import (
    NODE_CLAIM,
    POD_NAME_CLAIM,
    POD_UID_CLAIM,
    Authenticator,
    Caller,
)
from latencyprobe_operator.directory.limits import Refused
from tests.latencyprobe_operator.directory_world import AGENT
from tests.latencyprobe_operator.tokens import ON_N1, Clock, authenticator, token


def ask(auth: Authenticator, with_token: str) -> Caller:
    return asyncio.run(auth.agent(with_token))


def test_node_comes_from_the_node_claim() -> None:
    auth, _ = authenticator({"t": ON_N1})
    assert ask(auth, "t").node == "n1"


def test_without_node_claim_the_pod_claims_node_counts() -> None:
    auth, _ = authenticator({"t": Reviewed(AGENT, extra={POD_NAME_CLAIM: ["agent-n2"], POD_UID_CLAIM: ["uid-2"]})})
    assert ask(auth, "t").node == "n2"


@pytest.mark.parametrize(
    ("user", "status"),
    [
        (None, 401),
        (Reviewed("system:serviceaccount:shop:default", extra={NODE_CLAIM: ["n1"]}), 403),
        (Reviewed("system:serviceaccount:agents:other", extra={NODE_CLAIM: ["n1"]}), 403),
        (Reviewed(AGENT), 403),
        (Reviewed(AGENT, extra={NODE_CLAIM: ["n1", "n2"]}), 403),
        (Reviewed(AGENT, extra={POD_NAME_CLAIM: ["agent-n2"], POD_UID_CLAIM: ["uid-of-the-pod-before"]}), 403),
    ],
)  # fmt: skip
def test_others_are_refused(user: Reviewed | None, status: int) -> None:
    auth, _ = authenticator({"t": user} if user else {})
    with pytest.raises(Refused) as refused:
        ask(auth, "t")
    assert refused.value.status == status


@pytest.mark.parametrize("bad", ["", "x" * 20_000])
def test_missing_or_huge_token_never_reaches_the_api_server(bad: str) -> None:
    auth, reviewer = authenticator({bad: ON_N1})
    with pytest.raises(Refused) as refused:
        ask(auth, bad)
    assert (refused.value.status, reviewer.calls) == (401, 0)


def test_answer_is_cached_until_shortly_before_the_token_ends() -> None:
    clock, mine = Clock(), token(3600)
    auth, reviewer = authenticator({mine: ON_N1}, clock)
    ask(auth, mine)
    clock.now += 3600 - 60
    ask(auth, mine)
    assert reviewer.calls == 1
    clock.now += 45
    ask(auth, mine)
    assert reviewer.calls == 2


@pytest.mark.parametrize(
    ("expires_in_s", "believed_s"), [(-3600, 60), (20, 60), (1200, 1170), (7200, 3600)]
)  # fmt: skip
def test_operator_whose_clock_is_wrong_believes_whom_the_api_server_has_just_vouched_for(
    expires_in_s: float, believed_s: float
) -> None:
    clock, mine = Clock(), token(expires_in_s)
    auth, reviewer = authenticator({mine: ON_N1}, clock)
    until_s = ask(auth, mine).until_s
    assert until_s - clock.now == pytest.approx(believed_s, abs=2)
    for _ in range(10):
        ask(auth, mine)
    assert reviewer.calls == 1
    clock.now = until_s
    ask(auth, mine)
    assert reviewer.calls == 2


def test_cached_caller_is_served_while_the_api_server_is_away_and_a_new_one_has_to_wait() -> None:
    mine, other = token(3600), token(3601)
    auth, reviewer = authenticator({mine: ON_N1, other: ON_N1})
    ask(auth, mine)
    reviewer.away = True
    assert ask(auth, mine).node == "n1"
    with pytest.raises(Refused) as refused:
        ask(auth, other)
    assert refused.value.status == 503


def test_known_caller_is_believed_beyond_its_tokens_end_while_the_api_server_is_away() -> None:
    """The kubelet has no new token either. It is asked again from time to time, and its word counts."""
    clock, mine, strange = Clock(), token(3600), token(3601)
    auth, reviewer = authenticator({mine: ON_N1}, clock)
    ask(auth, mine)
    reviewer.away = True
    clock.now += 2 * 3600
    caller = ask(auth, mine)
    assert (caller.node, caller.until_s - clock.now) == ("n1", 60)
    for _ in range(50):
        ask(auth, mine)
        with pytest.raises(Refused, match="cannot be asked"):
            ask(auth, strange)
    assert reviewer.calls == 2, "one in five seconds, however many ask"
    clock.now += 4 * 3600
    with pytest.raises(Refused) as refused:
        ask(auth, mine)
    assert refused.value.status == 503


def test_token_that_the_api_server_refuses_after_its_return_is_believed_no_more() -> None:
    clock, mine = Clock(), token(3600)
    auth, reviewer = authenticator({mine: ON_N1}, clock)
    ask(auth, mine)
    clock.now += 3600
    reviewer.away = True
    ask(auth, mine)
    reviewer.away, reviewer.users = False, {}
    clock.now += 10
    for _ in range(2):
        with pytest.raises(Refused) as refused:
            ask(auth, mine)
        assert refused.value.status == 401


def test_who_read_metrics_before_may_read_them_while_the_api_server_is_away() -> None:
    auth, reviewer = authenticator({"api-t": Reviewed("prometheus"), "api-u": Reviewed("prometheus")})
    asyncio.run(auth.metrics_reader("api-t"))
    reviewer.away = True
    asyncio.run(auth.metrics_reader("api-t"))
    with pytest.raises(Refused):
        asyncio.run(auth.metrics_reader("api-u"))


@pytest.mark.parametrize(("user", "status"), [("prometheus", None), ("somebody", 403)])
def test_metrics_are_for_those_whom_the_api_server_lets_read_them(user: str, status: int | None) -> None:
    auth, _ = authenticator({"api-t": Reviewed(user)})

    def read() -> Any:
        return asyncio.run(auth.metrics_reader("api-t"))

    if status is None:
        read()
    else:
        with pytest.raises(Refused) as refused:
            read()
        assert refused.value.status == status
