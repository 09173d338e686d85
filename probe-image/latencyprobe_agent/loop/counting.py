"""Reads the kernel's counts once a second, and lets owners go that have ended."""

from collections import Counter

import numpy as np

from latencyprobe_agent.identity.resources import Resources
from latencyprobe_agent.kernel.programs import Programs
from latencyprobe_agent.measure.counts import Counts, Ended, Snapshot
from latencyprobe_agent.vocabulary.now import Now
from latencyprobe_agent.vocabulary.records import COUNTS_KEY

_FORGET_INTERVAL_S = 60.0


class Counting:
    """`export_interval_s`: the last counts of an ended owner are exported before they leave the table."""

    def __init__(self, programs: Programs, export_interval_s: float, start: Now) -> None:
        self._programs = programs
        self._interval_s = max(_FORGET_INTERVAL_S, 2 * export_interval_s)
        self._ended = Ended()
        self._living: set[bytes] = set()
        self._looked_s = start.boot_s

    def read(self, resources: Resources, now: Now, *, everything: bool = False) -> Snapshot:
        """Return the counts as they are. `everything`: look for what found no room too, though there seems to be some;
        it is looked for once a minute anyway."""
        lost, due = self._programs.lost(), now.boot_s - self._looked_s >= self._interval_s
        keys, values = self._programs.counts(everything=everything or due or lost.get("counts_full", 0) > 0)
        containers = keys.copy()
        containers["owner"] = resources.whose(keys["owner"])
        over = np.zeros(len(keys), np.bool_)
        if due:
            self._looked_s = now.boot_s
            self._programs.let_go()
            over = self._ended.over(keys, values, resources.ended)
            self._programs.forget(keys[over])
            self._ended.add(Counts(containers[over], values[over]))
        living = self._ended.living(Counts(containers[~over], values[~over]), resources.ended)
        before, self._living = self._living, {key.tobytes() for key in living.keys}
        let_go = np.frombuffer(b"".join(before - self._living), COUNTS_KEY)
        held = Counter(keys["target_set"].tolist())
        return Snapshot(self._ended.join(living), living, let_go, lost, self._programs.unaccounted(), held)
