"""Addresses as agents write them, whichever way the API server stores them."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latencyprobe_agent.vocabulary.addresses import address
from latencyprobe_operator.cluster.addresses import canonical


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ("10.96.0.7", "10.96.0.7"),
        ("10.96.011.012", "10.96.11.12"),
        ("000.000.00.0", "0.0.0.0"),
        ("fd00:10:96:0:0:0:0:7", "fd00:10:96::7"),
        ("FD00:0010::00a7", "fd00:10::a7"),
        ("fd00::00010", "fd00::10"),
        ("::", "::"),
        ("::ffff:10.096.0.7", "10.96.0.7"),
    ],
)
def test_an_address_has_one_form_however_it_is_stored(stored: str, expected: str) -> None:
    assert canonical([stored]) == (expected,)


@given(st.ip_addresses())
def test_each_address_is_what_agents_make_of_a_record(ip: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    mapped = ip if ip.version == 6 else ipaddress.IPv6Address(f"::ffff:{ip}")
    assert canonical([ip.exploded]) == (address(mapped.packed),)


def test_what_is_no_address_is_left_out_and_what_is_said_twice_counts_once() -> None:
    none = ["", "None", "cart.example", "10.96.0", "10.96.0.256", "0x0a.0.0.1", "fe80::1%eth0", "10.0.0.1/32", "\0"]
    assert canonical([*none, "10.0.0.1", "10.0.0.01"]) == ("10.0.0.1",)
