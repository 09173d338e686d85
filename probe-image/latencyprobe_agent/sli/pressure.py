"""What held up the containers of an objective's exchanges: in all of the time, and when bad events of theirs ended.

Receives the kernel's counts by owner and what each owner's container was held up by meanwhile. An interval of a second
in which a container's exchange ended badly is one of its bad ones: finer than a row's minute, and as exact as counts.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from latencyprobe.sli import PressureTime, added_pressure
from latencyprobe.slo.objective import ObjectiveKey
from latencyprobe_agent.measure.counts import COUNTS, Counts
from latencyprobe_agent.measure.objectives import TrackedObjective
from latencyprobe_agent.measure.pressure import Stall

# What good and bad are made of.
_JUDGED = np.dtype([(name, COUNTS[name]) for name in ("outcomes", "within", "failed_within")])


class HeldUp:
    """Remembers which counts are not new."""

    def __init__(self) -> None:
        self._before: dict[bytes, NDArray[np.void]] = {}

    def since(
        self,
        living: Counts,
        stalls: Mapping[int, Stall],
        tracked: Mapping[tuple[int, int], Sequence[TrackedObjective]],
    ) -> Iterator[tuple[TrackedObjective, dict[str, PressureTime]]]:
        """Yield each objective whose containers are known, with what held them up since the call before.

        `stalls`: by owner; `tracked`: objectives by target set and role. A container counts once for an objective,
        however many owners (processes, cgroups that it nests) and target sets it has.
        """
        containers: dict[ObjectiveKey, dict[str, tuple[Stall, bool]]] = {}
        objectives: dict[ObjectiveKey, TrackedObjective] = {}
        gained = self._gained(living)
        ended: list[bool] = (gained["outcomes"].sum(axis=1) > 0).tolist()
        for row, (owner, index, role) in enumerate(living.keys[["owner", "target_set", "role"]].tolist()):
            if (stall := stalls.get(owner)) is None:
                continue
            for objective in tracked.get((index, role), ()):
                objectives[objective.key] = objective
                of_objective = containers.setdefault(objective.key, {})
                _, bad = of_objective.get(stall.container, (stall, False))
                bad = bad or (ended[row] and objective.good_and_bad(gained[row])[1] > 0)
                of_objective[stall.container] = stall, bad
        for key, of_objective in containers.items():
            times: dict[str, PressureTime] = {}
            for stall, bad in of_objective.values():
                times = added_pressure(times, _times(stall, bad=bad))
            yield objectives[key], times

    def _gained(self, living: Counts) -> NDArray[np.void]:
        """Return what was gained of each row since the call before."""
        now = living.values[list(_JUDGED.names or ())].astype(_JUDGED)
        words = now.view(np.uint64).reshape(len(now), _JUDGED.itemsize // 8)  # -1 is refused where nobody counts yet
        gained, keys = words.copy(), [key.tobytes() for key in living.keys]
        for row, key in enumerate(keys):
            before = self._before.get(key)
            if before is not None and (before <= words[row]).all():  # else it has left the table and came back
                gained[row] -= before
        self._before = dict(zip(keys, words, strict=True))
        found: NDArray[np.void] = gained.view(_JUDGED).reshape(len(now))
        return found


def _times(stall: Stall, *, bad: bool) -> dict[str, PressureTime]:
    of_us = stall.elapsed_us
    return {kind: PressureTime(us, of_us, us if bad else 0, of_us if bad else 0) for kind, us in stall.us.items()}
