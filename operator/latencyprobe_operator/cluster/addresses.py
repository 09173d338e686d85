"""Addresses as agents write those of their records, whichever way the API server stores them.

It takes leading zeros up to 1.35, which it reads as decimal, capitals and groups of zeros in every version.
"""

import re
from collections.abc import Iterable
from ipaddress import IPv6Address
from socket import AF_INET, AF_INET6, inet_pton

_ZEROS = re.compile(r"(?<![^.:])0+(?=[0-9A-Fa-f])")  # of a number, but for its last digit


def canonical(found: Iterable[str]) -> tuple[str, ...]:
    """Return these addresses in their one form each (RFC 5952, IPv4 where it is mapped), without what is none."""
    return tuple(dict.fromkeys(filter(None, map(_canonical, found))))


def _canonical(stored: str) -> str:
    text = _ZEROS.sub("", stored)
    try:
        if ":" not in text:
            inet_pton(AF_INET, text)  # a tenth of what ipaddress takes, and there are 150,000 pods
            return text
        ip = IPv6Address(inet_pton(AF_INET6, text))
    except (OSError, ValueError):
        return ""
    return str(ip.ipv4_mapped or ip)
