"""What came of many played scripts: faults, and the figures that a run prints."""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from latencyprobe_agent.vocabulary.records import Excluded, Role
from tests.truth.played import OTHER, Played
from tests.truth.script_checks import Truth, as_told, off_the_model, side_by_side, undecided
from tests.truth.turns import OneEnd

Ends = dict[Role, OneEnd]
Records = dict[Role, NDArray[np.void]]
SHOWN = 5  # scripts that differ


@dataclass
class Findings:
    """Faults and figures of all scripts so far. `shown`: the first `faulty` ones, with all that is known of them."""

    turns: Counter[str] = field(default_factory=Counter)  # why they are no event
    events: Counter[str] = field(default_factory=Counter)  # what the script knows of them
    undecided: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    scripts: int = 0
    stalled: int = 0
    faulty: int = 0
    shown: list[str] = field(default_factory=list)

    def look(self, played: Played, ends: Ends, records: Records) -> None:
        """Compare one connection, with the model and with what its script knows."""
        self.scripts += 1
        self.stalled += played.stalled
        for of_end in records.values():
            self.turns.update(Excluded(int(excluded)).name.lower() for excluded in of_end["excluded"])
        if doubt := undecided(played, ends):
            self.undecided[doubt] += 1
            return
        faults = {fault for role, of_end in records.items() for fault in self._faults(played, ends, role, of_end)}
        self.faults.update(faults)
        self.faulty += bool(faults)
        if faults and len(self.shown) < SHOWN:
            self.shown.append(describe(played, ends, records, faults))

    def _faults(self, played: Played, ends: Ends, role: Role, of_end: NDArray[np.void]) -> list[str]:
        turns, truth, faults = ends[role].turns, Truth(played, self.events), []
        if len(turns) != len(of_end):
            faults.append("other turns than the model")
        else:
            for turn, record in zip(turns, of_end, strict=True):
                if why := off_the_model(as_told(turn, record, ends[OTHER[role]]), record):
                    faults.append(f"a turn {why.split()[0]}, not as the model's")
        for record in of_end[of_end["excluded"] == Excluded.NONE]:
            if not played.stalled and (why := truth.wrong(record)):
                faults.append(f"{role.name.lower()}'s event {why}")
        return faults

    def __str__(self) -> str:
        turns = self.turns.total()
        shares = ", ".join(f"{kind} {n / turns:.2%}" for kind, n in self.turns.most_common())
        lines = [f"{self.scripts} scripts, {turns} turns: {shares}", f"events: {dict(self.events.most_common())}"]
        lines.append(f"undecided: {dict(self.undecided)}; delayed by the machine, model only: {self.stalled}")
        return "\n".join(lines)

    def report(self) -> str:
        """Tell the faults, and show some scripts that have them."""
        return "\n\n".join([str(dict(self.faults)), *self.shown])


def describe(played: Played, ends: Ends, records: Records, faults: set[str]) -> str:
    """All that is known of a faulty script."""
    lines = [str(played.script), f"  faults: {', '.join(sorted(faults))}", played.timeline()]
    for role, of_end in records.items():
        lines += [f"  {role.name.lower()}:", side_by_side(ends, role, of_end, played.begin_ns)]
    return "\n".join(lines)
