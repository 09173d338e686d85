"""How many connections ended where no program saw it, each with what was open on it: they are missing when those
that are left are counted."""

from collections.abc import Callable, Mapping


class UnseenEnds:
    """`read` returns how many connections have `begun` and `ended`, and how often a flush has `found` one, each growing
    (`enum census`). `count`: how many have ended unseen, at least; all of them once few begin and end during a flush.
    """

    def __init__(self, read: Callable[[], Mapping[str, int]]) -> None:
        self._read = read
        self.count = 0

    def count_around(self, flush: Callable[[], None]) -> None:
        """Flush, and count. Whoever begins meanwhile is not asked for, and whoever ends need not have been found."""
        before = self._read()
        flush()
        after = self._read()
        left = after["found"] - before["found"]
        self.count = max(self.count, before["begun"] - after["ended"] - left)
