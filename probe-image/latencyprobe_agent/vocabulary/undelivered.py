"""What became of SLI rows that the directory has not got: the directory's room counts, the agent's metrics tell."""

from collections.abc import Mapping
from typing import NamedTuple


class Undelivered(NamedTuple):
    """`waiting`: rows for the directory; `dropped`: since the start, by reason."""

    waiting: int = 0
    dropped: Mapping[str, int] = {}
