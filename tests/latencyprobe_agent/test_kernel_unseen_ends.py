"""unseen_ends.py: of connections whose end no program saw none is counted that is there, and each once it is quiet."""

from collections import Counter
from random import Random

import pytest

from latencyprobe_agent.kernel.unseen_ends import UnseenEnds


class Kernel:
    """Connections that begin, and end seen or not, also while a flush goes from one to the next."""

    def __init__(self, seed: int) -> None:
        self.told = Counter(begun=0, ended=0, found=0)
        self.open: set[int] = set()
        self.unseen = 0
        self._random = Random(seed)

    def go_on(self, steps: int) -> None:
        for _ in range(steps):
            if self._random.random() < 0.5 or not self.open:
                self.told["begun"] += 1
                self.open.add(self.told["begun"])
            elif self._random.random() < 0.2:
                self.open.remove(self._random.choice(sorted(self.open)))
                self.unseen += 1
            else:
                self.open.remove(self._random.choice(sorted(self.open)))
                self.told["ended"] += 1

    def flush(self, steps: int) -> None:
        for connection in sorted(self.open):
            self.go_on(steps)
            self.told["found"] += connection in self.open


@pytest.mark.parametrize("seed", range(50))
def test_what_is_busy_is_counted_at_most_and_what_is_quiet_exactly(seed: int) -> None:
    kernel = Kernel(seed)
    ends = UnseenEnds(lambda: dict(kernel.told))
    for _ in range(20):
        kernel.go_on(5)
        before = ends.count
        ends.count_around(lambda: kernel.flush(2))
        assert before <= ends.count <= kernel.unseen
    ends.count_around(lambda: kernel.flush(0))
    assert ends.count == kernel.unseen
