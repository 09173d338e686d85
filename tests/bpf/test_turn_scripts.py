"""Random connections whose every message is known: the kernel makes of them what the rules say, and no event is untrue.

SCRIPTS=100000 in the environment plays so many, SEED=7 begins with script 7. To see one script: SCRIPTS=1 SEED=... -s.
"""

import os
from collections import Counter
from collections.abc import Iterable

import numpy as np
import pytest

from latencyprobe_agent.vocabulary.records import Excluded, Role
from tests.support.ports import free_port
from tests.truth.endings import Author
from tests.truth.played import Played
from tests.truth.playing import play, stage
from tests.truth.script_checks import Truth, modelled, off_the_model, side_by_side, undecided
from tests.truth.scripts import IDLE_NS, PAUSE_NS
from tests.truth.turns import OneEnd

pytestmark = pytest.mark.root

SCRIPTS = int(os.environ.get("SCRIPTS", "2000"))
SEED = int(os.environ.get("SEED", str(np.random.SeedSequence().entropy % 1_000_000)))  # type: ignore[operator]
AT_ONCE = 200  # connections
TOGETHER = 1000  # scripts that are looked at together
SHOWN = 5  # scripts that differ

Ends = dict[Role, OneEnd]
Records = dict[Role, np.ndarray]


class Findings:
    """What came of all scripts."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()  # of ended turns
        self.events: Counter[str] = Counter()
        self.undecided: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.stalled = 0
        self.shown: list[str] = []

    def look(self, played: Played, ends: Ends, records: Records) -> None:
        """Compare one connection."""
        truth, faults = Truth(played, self.events), []
        doubt = undecided(played, ends)
        self.undecided[doubt] += 1
        self.stalled += played.stalled
        for role, of_end in records.items():
            turns = ends[role].turns
            if not doubt:
                if len(turns) != len(of_end):
                    faults.append("other turns than the model")
                faults += [
                    f"{why.split()[0]}, not as the model"
                    for t, r in zip(turns, of_end, strict=False)
                    if (why := off_the_model(t, r))
                ]
            for record in of_end:
                self.kinds[Excluded(int(record["excluded"])).name.lower()] += 1
                known = not doubt and not played.stalled
                if known and record["excluded"] == Excluded.NONE and (why := truth.wrong(record)):
                    faults.append(f"{role.name.lower()}'s event {why}")
        if faults:
            self.faults.update(set(faults))
            self._show(played, ends, records, faults)

    def _show(
        self, played: Played, ends: dict[Role, OneEnd], records: dict[Role, np.ndarray], faults: list[str]
    ) -> None:
        if len(self.shown) < SHOWN:
            lines = [str(played.script), f"  faults: {faults}", played.timeline()]
            for role, of_end in records.items():
                lines += [f"  {role.name.lower()}:", side_by_side(ends, role, of_end, played.begin_ns)]
            self.shown.append("\n".join(lines))

    def __str__(self) -> str:
        turns, scripts = self.kinds.total(), self.undecided.total()
        shares = ", ".join(f"{kind} {n / turns:.2%}" for kind, n in self.kinds.most_common())
        doubts = {why: n for why, n in self.undecided.items() if why}
        lines = [f"{scripts} scripts, {turns} turns: {shares}", f"events: {dict(self.events)}"]
        lines.append(f"undecided: {sum(doubts.values())} {doubts}; delayed by the machine: {self.stalled}")
        return "\n".join(lines)


def records_by_end(everything: np.ndarray, played: Iterable[Played]) -> list[Records]:
    """Per connection the records of each of its ends, in order."""
    grouped = everything[np.argsort(everything["sock_cookie"], kind="stable")]
    cookies, begin, counts = np.unique(grouped["sock_cookie"], return_index=True, return_counts=True)
    of_cookie = {cookie: grouped[i:][:n] for cookie, i, n in zip(cookies.tolist(), begin, counts, strict=True)}
    return [{role: of_cookie.get(cookie, everything[:0]) for role, cookie in one.cookies.items()} for one in played]


def test_random_connections_are_what_they_are_known_to_be(session):
    port, found, together = free_port(), Findings(), []
    session.measure(port, pause_ns=PAUSE_NS, idle_timeout_ns=IDLE_NS)
    print(f"SEED={SEED} SCRIPTS={SCRIPTS}")

    def look() -> None:
        ends = [modelled(one) for one in together]
        everything = session.fresh_records(sum(len(end.turns) for both in ends for end in both.values()))
        for one, both, records in zip(together, ends, records_by_end(everything, together), strict=True):
            found.look(one, both, records)
        together.clear()

    with stage():
        scripts = (Author(seed).write() for seed in range(SEED, SEED + SCRIPTS))
        for played in play(scripts, port, session.programs.flush, AT_ONCE):
            together.append(played)
            if len(together) == TOGETHER:
                look()
    look()
    print(found)
    assert not found.faults, "\n\n".join([str(dict(found.faults)), *found.shown])
