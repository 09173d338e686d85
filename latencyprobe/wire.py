"""What agents and operator of different versions say to each other: docs/design/directory.md, "Versions".

Who reads a document ignores fields that it does not know, and takes the default of one that is missing. So a field may
be added at any time, as long as an older reader does no harm without it. What one would take wrongly (a field
that changes its meaning or goes, a value that it must know) takes a new `VERSION`, and both sides name theirs.
"""

import msgspec

VERSION = 1
HEADER = "LatencyProbe-Wire"
CHANGES_HEADER = "LatencyProbe-Plan-Changes"  # in a request for the plan stream: changes of a plan are taken,
CHANGES = "2"  # by digests as `plan_digest.digest_of` makes them; `1` was by those over the whole document
MAX_ADDRESSES = 1_000  # of one request for identities
MAX_KEYS = 1_000  # of halves that are asked for in one request
STATUS_S = 15.0  # from one status of an agent to the next, unless the plan stream says more
# What msgspec raises at a document that is none: for text that is no UTF-8, and for one too deep, Python's own.
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def differs(header: str | None) -> bool:
    """Return whether the other side speaks another version, by its header; one without any is older than these."""
    return header != str(VERSION)
