"""A client's log of its own RPCs, printed as one line of JSON at its end; runs in the image `servers`."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Calls:
    """How long each RPC took, and how many failed. Any thread may write."""

    def __init__(self) -> None:
        self._took_ms: list[float] = []
        self._failed = 0

    def __len__(self) -> int:
        return len(self._took_ms)

    @contextmanager
    def call(self) -> Iterator[None]:
        """One RPC; it has failed if it raises."""
        begun_s = time.perf_counter()
        try:
            yield
        except Exception:
            self._failed += 1
            raise
        finally:
            self._took_ms.append(1000 * (time.perf_counter() - begun_s))

    def tell(self, **more: Any) -> None:
        """Print the log, the slowest first, and what else the client counted."""
        print(json.dumps({"took_ms": sorted(self._took_ms, reverse=True), "failed": self._failed, **more}))
