"""Links from trace ids to a tracing system's page of them. Pure.

`latencyprobe report --trace-url` gives the address, such as `http://jaeger:16686/trace/{traceId}`; html.py and
markdown.py put the ids in. An id comes from a report and may be anything.
"""

import re
from urllib.parse import quote, urlsplit

MARK = "{traceId}"
_REFUSED = re.compile(r"[^\x21-\x7e]|[<>\"'`\\^|{}]")


def problem(address: str) -> str:
    """Return what is wrong with an address and what to do about it; empty for a good one."""
    example = f"give one such as http://jaeger:16686/trace/{MARK}"
    try:
        parts = urlsplit(address)
        host = parts.hostname
    except ValueError as error:
        return f"{error}: {example}"
    if parts.scheme not in ("http", "https") or not host:
        return f"no http or https address: {example}"
    if MARK not in f"{parts.path}?{parts.query}#{parts.fragment}" or MARK in parts.netloc:
        return f"{MARK} is not in its path: {example}"
    if found := _REFUSED.search(address.replace(MARK, "")):
        return f"{found[0]!r} cannot stand in it: write it as {quote(found[0])}"
    return ""


def link(address: str, trace_id: str) -> str:
    """Return the address of one trace, ASCII without quotes, brackets or spaces; empty where either is missing."""
    return address.replace(MARK, quote(trace_id, safe="")) if address and trace_id else ""
