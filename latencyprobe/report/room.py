"""A report within its bounds: what has no room is given up by the best objectives first. Pure."""

from collections.abc import Callable, Iterable
from fractions import Fraction

import msgspec
from msgspec.structs import replace

from latencyprobe.report.headline import summary
from latencyprobe.report.model import Report, Result

MAX_RESULTS = 256
MAX_BYTES = 256 << 10  # of the LatencyReport: what etcd and a watcher can bear once a minute
_AROUND = 4096  # metadata with its owner references, summary
_WHOLE = 12  # results that keep all they have whatever the size: 12 × 20 KiB at their longest

Rank = tuple[int, Fraction, str, str]  # the worst first: place of the state, remaining budget, probe, objective
Verdict = tuple[Rank, Result]

_GIVEN_UP: tuple[Callable[[Result], Result], ...] = (
    lambda one: replace(one, burn_down=None, week_before=None),
    lambda one: replace(one, now=replace(one.now, peers=())) if one.now else one,
    lambda one: replace(one, slowest=(), top_peers=(), waited_for=(), causes=()),
)


def bounded(verdicts: Iterable[Verdict]) -> Report:
    """Return a report, worst first, within MAX_RESULTS and MAX_BYTES: the best give up their history first, then the
    peers of the last minutes, then their exemplars and place."""
    results = [result for _, result in sorted(verdicts, key=lambda verdict: verdict[0])]
    kept = results[:MAX_RESULTS]
    sizes = [len(msgspec.json.encode(result)) for result in kept]
    room = MAX_BYTES - _AROUND
    for without in _GIVEN_UP:
        for i in reversed(range(_WHOLE, len(kept))):
            if sum(sizes) > room:
                kept[i] = without(kept[i])
                sizes[i] = len(msgspec.json.encode(kept[i]))
    while sum(sizes) > room:
        kept.pop()
        sizes.pop()
    return Report(summary(results), tuple(kept), len(results) - len(kept))
