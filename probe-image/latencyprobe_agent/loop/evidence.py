"""The signals of evidence beside measuring: attach what a target asks for, drain, join, count, hand over.

Signals are loaded beside the loop once measuring has begun, and detached when no target asks for them any more. Where
none is in force they stay: an agent that has nothing to measure ends soon, or waits for the next pod, whose first
connections want explaining too. A signal that this kernel refuses is logged once, and measuring continues without it;
where memory was missing, or nothing could be opened, it is tried again.
"""

import logging
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from functools import partial, reduce
from operator import or_
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latencyprobe.errors import Unsupported
from latencyprobe.plan import ServerHalf
from latencyprobe.sli import added
from latencyprobe.variants import LACKING
from latencyprobe_agent.guard import Guard
from latencyprobe_agent.identity.resources import Resources
from latencyprobe_agent.kernel.evidence import EvidencePrograms
from latencyprobe_agent.kernel.loader import OUT_OF_MEMORY
from latencyprobe_agent.loop.background import Loading
from latencyprobe_agent.measure.evidence import EvidenceBatch, Joined
from latencyprobe_agent.measure.evidence_counts import Gained, Growth
from latencyprobe_agent.measure.evidence_join import EvidenceJoin
from latencyprobe_agent.measure.halves import Halves, adjusted_count
from latencyprobe_agent.measure.recent import RecentHalves
from latencyprobe_agent.measure.rules import NO_EVIDENCE, Rules
from latencyprobe_agent.signals.evidence import Evidence
from latencyprobe_agent.signals.table import EVIDENCE, EvidenceSignal
from latencyprobe_agent.vocabulary.records import EvidenceFlags, Role
from latencyprobe_agent.vocabulary.values import UNMEASURED

_log = logging.getLogger(__name__)
_BATCH = 4096
_BATCHES_AT_ONCE = 64  # then exchanges have their turn again
_FORGET_INTERVAL_S = 60.0
_RETRY_S = 60.0
_WHY = 500  # characters; a verifier's log is long
_REMEMBERED = 4096  # server halves, for the nodes that ask within seconds


class _Running(NamedTuple):
    signal: EvidenceSignal
    programs: EvidencePrograms
    join: EvidenceJoin
    nothing: Evidence
    growth: Growth


class _Refusal(NamedTuple):
    why: str
    again_s: float


class EvidenceSignals(AbstractContextManager["EvidenceSignals"]):
    """The signals of evidence that targets ask for; `attach` brings one into the kernel, in `background`. Its counters
    only grow, also when a signal is detached and attached again."""

    def __init__(self, attach: Callable[[EvidenceSignal], EvidencePrograms], background: Executor) -> None:
        self._loading = Loading(attach, background)
        self._recent = RecentHalves()
        self._rules: Rules | None = None
        self._running: dict[str, _Running] = {}
        self._refused: dict[str, _Refusal] = {}
        self._outcomes: dict[str, Counter[str]] = {}
        self._lost_before: dict[str, dict[str, int]] = {}  # by those that are detached, and by us
        self._gained_before: list[Gained] = []  # by these
        self._looked_s = 0.0
        self._lost: dict[int, dict[str, int]] = {}  # by join key: ns by signal

    def __exit__(self, *_: object) -> None:
        self._loading.close()
        for one in self._running.values():
            one.programs.close()
        self._running.clear()

    @property
    def variants(self) -> Mapping[str, str]:
        """Attach variant by event of every signal, LACKING for a signal that cannot be attached."""
        found = {
            f"{name}.{event}": variant
            for name, one in self._running.items()
            for event, variant in one.programs.variants.items()
        }
        return found | dict.fromkeys(self._refused, LACKING)

    @property
    def refused(self) -> Mapping[str, str]:
        """Why each signal that is asked for and cannot be attached is not, with the remedy."""
        return {name: one.why for name, one in self._refused.items()}

    @property
    def loading(self) -> tuple[str, ...]:
        """The signals that explain nothing yet, as they are being loaded; not those that were refused before."""
        return tuple(sorted({*self._loading} - self._refused.keys()))

    @property
    def lost(self) -> Mapping[str, Mapping[str, int]]:
        """Records that never arrived, by signal and reason."""
        now = {name: one.programs.lost() for name, one in self._running.items()}
        return {
            name: added(self._lost_before.get(name, {}), now.get(name, {})) for name in {**self._lost_before, **now}
        }

    @property
    def outcomes(self) -> Mapping[str, Mapping[str, int]]:
        """Records by signal and by what became of them."""
        return self._outcomes

    def follow(self, rules: Rules, now_s: float) -> None:
        """Begin to load what the target sets in force ask for, let go of what they do not, and take in what has been
        loaded since the call before. `now_s`: of the monotonic clock."""
        due = any(one.again_s <= now_s for one in self._refused.values())
        if rules is self._rules and not due and not self._loading:
            return
        self._rules = rules
        requested = reduce(or_, (one.evidence for one in rules.in_force.values()), NO_EVIDENCE)
        for signal in EVIDENCE:
            name = signal.switch
            asked = any(EvidenceFlags[switch.upper()] in requested for switch in signal.asked_by)
            known = name in self._running or name in self._loading
            if not asked:
                if name in self._running and rules.in_force:
                    self._detach(name)
                self._refused.pop(name, None)
            elif not known and (name not in self._refused or self._refused[name].again_s <= now_s):
                self._loading.begin(name, signal)
            if self._loading.is_over(name):
                self._take(signal, asked, now_s)

    def keep(self, halves: Halves) -> None:
        """Take in a batch of exchanges that have ended."""
        if self._running or self._loading:
            self._recent.keep(halves)

    def drain(self, now_ns: int, resources: Resources, guard: Guard) -> Iterator[EvidenceBatch]:
        """Yield what each signal recorded, by container, and what it explains. The ring of exchanges must have been
        drained: whatever explains these was recorded before. A signal that raises takes none of the others along."""
        for one in self._running.values():
            name = one.signal.switch
            for _ in range(_BATCHES_AT_ONCE):
                batch = guard.run("evidence", partial(one.programs.drain, _BATCH))
                if batch is None:
                    break
                made = guard.run("evidence", partial(self._joined, one, batch, now_ns, resources))
                if made is None:
                    self._lost_before[name] = added(self._lost_before.get(name, {}), {UNMEASURED: len(batch)})
                yield from made or ()
                if len(batch) < _BATCH:
                    break

    def _joined(
        self, one: _Running, batch: NDArray[np.void], now_ns: int, resources: Resources
    ) -> tuple[EvidenceBatch, ...]:
        records = one.signal.columns(batch) if len(batch) else one.nothing
        flow = records.rec["flow"]
        flow["cgroup_id"] = resources.whose(flow["cgroup_id"])
        joined = one.join.join(records, now_ns)
        if joined is not None and joined.wait_ns.any():
            self._note(one.signal.switch, joined)
        shared = one.join.shared()
        found = len(records) or joined or shared
        return (EvidenceBatch(one.signal.switch, one.signal.explains, records, joined, shared),) if found else ()

    def counted(self, resources: Resources, now_s: float) -> tuple[Gained, ...]:
        """Return what the signals have counted in the kernel since the call before, by container, and let go of owners
        that have ended."""
        found, self._gained_before = self._gained_before, []
        forget = now_s - self._looked_s >= _FORGET_INTERVAL_S
        self._looked_s = now_s if forget else self._looked_s
        for one in self._running.values():
            keys, values = one.programs.evidence_counts()
            found.append(one.growth.since(keys, values))
            if forget:
                one.programs.forget_evidence(one.growth.over(keys, resources.ended))
        for gained in found:
            gained.keys["owner"] = resources.whose(gained.keys["owner"])
        return tuple(one for one in found if len(one.keys))

    def of(self, join_key: int) -> Mapping[str, int]:
        """Return what a server half of this node lost, in ns by signal, for the node that asks for it (remote join)."""
        return self._lost.get(join_key, {})

    def remote(self, halves: Mapping[int, ServerHalf]) -> None:
        """Take in what the server halves of our callers, by join key, lost on other nodes (remote join)."""
        for join_key, half in halves.items():
            for name, ns in half.lost_ns.items():
                if name in self._running:
                    count = adjusted_count(np.array([half.flags], np.uint32))
                    self._running[name].join.share(np.array([join_key], np.uint64), np.array([ns]), count)

    def _note(self, name: str, joined: Joined) -> None:
        servers = np.flatnonzero(joined.half["role"] == Role.SERVER)
        rows = zip(joined.half["join_key"][servers].tolist(), joined.new_ns[servers].tolist(), strict=True)
        for join_key, ns in rows:
            of_half = self._lost.setdefault(join_key, {})
            of_half[name] = of_half.get(name, 0) + ns
        while len(self._lost) > _REMEMBERED:
            del self._lost[next(iter(self._lost))]

    def give_up(self) -> None:
        """Count what still waits for an exchange as without one: nothing ends any more."""
        for one in self._running.values():
            one.join.give_up()

    def tick(self) -> None:
        """Let the signals look at connections without events, once a second."""
        for one in self._running.values():
            one.programs.flush()

    def _take(self, signal: EvidenceSignal, asked: bool, now_s: float) -> None:
        name = signal.switch
        if not asked:
            self._loading.discard(name)
            return
        try:
            self._start(signal, self._loading.take(name))
        except (Unsupported, OSError) as error:
            if name not in self._refused:
                _log.warning("no %s: %s; measuring continues without them", name, error)
            passes = isinstance(error, OSError) or error.reason == OUT_OF_MEMORY
            again_s = now_s + _RETRY_S if passes else math.inf
            self._refused[name] = _Refusal(" ".join(str(error).split())[:_WHY], again_s)
        else:
            self._refused.pop(name, None)
            _log.info("%s: attached", name)

    def _start(self, signal: EvidenceSignal, programs: EvidencePrograms) -> None:
        outcomes = self._outcomes.setdefault(signal.switch, Counter())
        explains = signal.explains
        join = EvidenceJoin(self._recent, signal.key, explains.waits, lasted=explains.lasted, outcomes=outcomes)
        nothing = signal.columns(np.empty(0, signal.record))
        self._running[signal.switch] = _Running(signal, programs, join, nothing, Growth(signal))

    def _detach(self, name: str) -> None:
        one = self._running.pop(name)
        one.join.give_up()
        self._gained_before.append(one.growth.since(*one.programs.evidence_counts()))
        self._lost_before[name] = added(self._lost_before.get(name, {}), one.programs.lost())
        one.programs.close()


class NoEvidence(EvidenceSignals):
    """Attaches nothing, whatever targets ask for: of an agent that counts alone."""

    def follow(self, rules: Rules, now_s: float) -> None:
        """Leave everything as it is."""
