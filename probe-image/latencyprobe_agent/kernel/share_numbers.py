"""Numbers of namespaces in the kernel's tables of shares (`target_set.share`).

What open calls of HTTP/2 have taken stands under a namespace's number until their connections end, whatever plan is in
force then. So a namespace keeps its number, also while no plan names it, and another one gets a fresh number as long as
there are any; then that of the one which has been gone for longest.
"""

from collections.abc import Iterable, Mapping

NUMBERS = 1024  # as `shares` and `streams_of` have room for; rules in force name half as many namespaces at most


class ShareNumbers:
    """`most`: how many numbers there are."""

    def __init__(self, most: int = NUMBERS) -> None:
        self._most = most
        self._known: dict[str, int] = {}  # those that were named last come last

    def of(self, namespaces: Iterable[str]) -> Mapping[str, int]:
        """Return the numbers of all namespaces that a plan names, at most as many as there are numbers."""
        named = sorted(set(namespaces))
        known = {name: self._known.pop(name) for name in named if name in self._known}
        for name in named:
            if name not in known:
                fresh = len(self._known) + len(known) < self._most
                known[name] = len(self._known) + len(known) if fresh else self._known.pop(next(iter(self._known)))
        self._known |= known
        return known
