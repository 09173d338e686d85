"""What tokens say of themselves, whatever that is."""

import base64

import pytest

from latencyprobe_operator.directory.claims import NONE, claims
from tests.latencyprobe_operator.tokens import token, token_of


def payload(content: bytes) -> str:
    return f"header.{base64.urlsafe_b64encode(content).decode()}.signature"


def test_a_token_of_a_pod_names_it() -> None:
    said = claims(token_of("shop", "cart-1", "uid-1")).kubernetes
    assert ("shop", "cart-1", "uid-1") == (said.namespace, said.pod.name, said.pod.uid)
    assert claims(token()).exp > 0


@pytest.mark.parametrize(
    "said",
    [
        *("", "x", "a.b", "a.!.c", "..", payload(b""), payload(b"[]"), payload(b"\xff"), payload(b'{"exp": "never"}')),
        payload(b'{"x": ' + b"[" * 6_000 + b"]" * 6_000 + b"}"),
        *(payload(b'{"kubernetes.io": %s}' % of) for of in (b"1", b'{"pod": null}', b'{"pod": {"uid": 1}}')),
    ],
)
def test_what_is_no_token_says_nothing(said: str) -> None:
    assert claims(said) == NONE
