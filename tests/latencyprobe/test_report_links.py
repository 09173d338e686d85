"""report/links.py: which addresses are taken, and what becomes of an id."""

import pytest

from latencyprobe.report import links


@pytest.mark.parametrize(
    "address",
    [
        "http://jaeger:16686/trace/{traceId}",
        "https://grafana.example/explore?left=%7B%22q%22:%22{traceId}%22%7D",
        "https://[::1]:3200/#/traces/{traceId}/{traceId}",
    ],
)
def test_addresses_of_tracing_systems_are_taken(address: str) -> None:
    assert "" == links.problem(address)


@pytest.mark.parametrize(
    ("address", "said"),
    [
        (
            "javascript:alert({traceId})",
            "no http or https address: give one such as http://jaeger:16686/trace/{traceId}",
        ),
        ("jaeger:16686/trace/{traceId}", "no http or https address"),
        ("//jaeger/{traceId}", "no http or https address"),
        ("http:///{traceId}", "no http or https address"),
        ("http://jaeger:16686/trace/", "{traceId} is not in its path"),
        ("http://{traceId}.example/", "{traceId} is not in its path"),
        ("http://{traceId}.example/{traceId}", "{traceId} is not in its path"),
        ('http://jaeger/"{traceId}', "'\"' cannot stand in it: write it as %22"),
        ("http://jaeger/{traceID}/{traceId}", "'{' cannot stand in it: write it as %7B"),
        ("http://jaeger/ü/{traceId}", "'ü' cannot stand in it: write it as %C3%BC"),
        ("http://jaeger/a b/{traceId}", "' ' cannot stand in it: write it as %20"),
        ("http://[jaeger/{traceId}", "Invalid IPv6 URL: give one such as"),
    ],
)
def test_other_addresses_are_refused_with_what_is_wrong(address: str, said: str) -> None:
    assert links.problem(address).startswith(said)


def test_an_id_cannot_leave_its_place() -> None:
    address = "http://jaeger/trace/{traceId}?x"
    assert "http://jaeger/trace/..%2F%22%3E%3Cb%3F%23%20%C3%BC?x" == links.link(address, '../"><b?# ü')
    assert "http://jaeger/trace/%7BtraceId%7D?x" == links.link(address, "{traceId}")


def test_without_an_address_or_an_id_there_is_no_link() -> None:
    assert "" == links.link("", "1" * 32)
    assert "" == links.link("http://jaeger/trace/{traceId}", "")
