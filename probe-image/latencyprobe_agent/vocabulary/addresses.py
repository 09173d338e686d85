"""Addresses of records, 16 bytes each with IPv4 mapped (RFC 4291, 2.5.5.2), as text."""

import ipaddress
from functools import lru_cache


@lru_cache(maxsize=4096)
def address(packed: bytes) -> str:
    """Return an address as text, IPv4 where it is mapped."""
    ip = ipaddress.IPv6Address(packed)
    return str(ip.ipv4_mapped or ip)


def endpoint(packed: bytes, port: int) -> str:
    """Return address:port, an IPv6 address in brackets."""
    text = address(packed)
    return f"[{text}]:{port}" if ":" in text else f"{text}:{port}"
