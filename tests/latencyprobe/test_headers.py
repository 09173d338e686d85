"""Headers from a variable: what is sent, and what is refused without telling a secret."""

import pytest

from latencyprobe.headers import headers


def test_headers_are_read_as_they_are_sent() -> None:
    assert headers("") == {}
    assert headers("X-Scope-OrgID=team%20a, X-Other = b,") == {"X-Scope-OrgID": "team a", "X-Other": "b"}
    assert headers("authorization=Basic%20c2Vj==") == {"authorization": "Basic c2Vj=="}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("authorization=Basic sec\nret", "the value of 'authorization'"),  # as `base64` wraps it
        ("authorization=Basic%20sec%0Aret", "the value of 'authorization'"),
        ("X-Scope=sec%0d%0aEvil: ret", "the value of 'X-Scope'"),
        ("authorization=Basic sec\N{EURO SIGN}ret", "the value of 'authorization'"),
        ("authorization: Basic sec ret==", "a name"),
        ("X Scope=secret", "a name"),
        ("a=1,=secret", "a name"),
        ("a=1,secret", "a name"),
    ],
)
def test_a_header_that_cannot_be_sent_is_refused_without_what_it_holds(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=f"^{says}") as refused:
        headers(text)
    assert "sec" not in str(refused.value)
    assert "ret" not in str(refused.value)
