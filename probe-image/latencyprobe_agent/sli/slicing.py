"""Adds up counts and records per objective and minute.

Good, bad, histogram and stage sums come from the kernel's counts and are exact; the slowest exchanges, the peers and
what joined pairs know come from records. Everything counts for the minute in which it is handed in.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from latencyprobe import sli
from latencyprobe.plan import NodePlan
from latencyprobe.sli import Coverage, SliRow, SlowExchange
from latencyprobe.slo.objective import ObjectiveKey, key_of
from latencyprobe_agent.measure import keys
from latencyprobe_agent.measure.calls import Called
from latencyprobe_agent.measure.counts import COUNTS, Counts
from latencyprobe_agent.measure.evidence import Joined, Shared
from latencyprobe_agent.measure.evidence_counts import Gained
from latencyprobe_agent.measure.groups import groups
from latencyprobe_agent.measure.halves import Halves
from latencyprobe_agent.measure.objectives import TrackedObjective, tracked
from latencyprobe_agent.measure.pairing import Pairs
from latencyprobe_agent.measure.pressure import Stall
from latencyprobe_agent.measure.rules import Rules
from latencyprobe_agent.signals.evidence import Explains
from latencyprobe_agent.signals.exchanges import PLACE_WORDS
from latencyprobe_agent.sli import rows
from latencyprobe_agent.sli.pressure import HeldUp
from latencyprobe_agent.sli.waited import Waited
from latencyprobe_agent.vocabulary import ids
from latencyprobe_agent.vocabulary.now import Now
from latencyprobe_agent.vocabulary.records import Excluded, Role

MINUTE_NS = 60_000_000_000

_OfSide = Callable[[Callable[[Halves], NDArray[Any]]], NDArray[Any]]  # of pairs, all clients or all servers


class Slicer:
    """Collects SLI rows. How long was measured is boot time; in which minute, Unix time.

    `add_counts()` is due before every `apply()` too: what was counted until then belongs to the plan before.
    """

    def __init__(self) -> None:
        self._tracked: dict[tuple[int, int], list[TrackedObjective]] = {}  # also by sets that no rule names any more
        self._measured: dict[ObjectiveKey, TrackedObjective] = {}
        self._rows: dict[tuple[ObjectiveKey, int], SliRow] = {}
        # of the last `take()`, by join key: what explains them may still come
        self._handed_over: dict[tuple[ObjectiveKey, int], SlowExchange] = {}
        self._pair_key = b""
        self._seen: dict[tuple[int, int], NDArray[np.uint64]] = {}
        self._held_up = HeldUp()
        self._unaccounted: Mapping[int, int] = {}
        self._since_ns = 0

    def begin(self, now: Now) -> None:
        """Take time as measured from now on."""
        self._since_ns = now.boot_ns

    def apply(self, plan: NodePlan, rules: Rules) -> None:
        """Count for the objectives of this plan and by these rules from now on."""
        self._tracked = tracked(plan, rules.sets)
        self._measured = _by_key(tracked(plan, rules.in_force))
        self._pair_key = plan.pair_key

    def add_counts(self, counts: Counts, unaccounted: Mapping[int, int], now: Now) -> None:
        """Take in the counts of all owners as they are now, and by target set how many exchanges are in none."""
        words = COUNTS.itemsize // 8
        sums: dict[tuple[int, int], NDArray[np.uint64]] = defaultdict(lambda: np.zeros(words, np.uint64))
        for key, total in zip(counts.keys, counts.values.view(np.uint64).reshape(-1, words), strict=True):
            sums[int(key["target_set"]), int(key["role"])] += total
        gained = {at: total - self._seen.get(at, np.uint64(0)) for at, total in sums.items()}
        self._seen.update(sums)
        lost = self._lost_of(unaccounted)
        measured = _measured_ms(now.unix_ns - (now.boot_ns - self._since_ns), now.unix_ns)
        self._since_ns = now.boot_ns
        minute = _minute(now.unix_ns)
        for objective in self._measured.values():
            for in_minute, ms in measured.items():
                self._add(replace(rows.empty(objective, in_minute), coverage=Coverage(measured_ms=ms)))
        for objective in _by_key(self._tracked).values():
            if missed := lost[objective.key]:
                self._add(replace(rows.empty(objective, minute), coverage=Coverage(lost=missed)))
        for set_and_role, more in gained.items():
            if more.any():
                for objective in self._tracked.get(set_and_role, ()):
                    self._add(rows.counted(objective, more.view(COUNTS)[0], minute))

    def _lost_of(self, unaccounted: Mapping[int, int]) -> Counter[ObjectiveKey]:
        """Return what every objective has lost since the call before."""
        lost: Counter[ObjectiveKey] = Counter()
        for (target_set, _), objectives in self._tracked.items():
            more = unaccounted.get(target_set, 0) - self._unaccounted.get(target_set, 0)
            lost.update({objective.key: more for objective in objectives})
        self._unaccounted = unaccounted
        return lost

    def add_pressure(self, living: Counts, stalls: Mapping[int, Stall], now: Now) -> None:
        """Take in what held up containers, by owner, while the counts of living owners became what they are."""
        for objective, times in self._held_up.since(living, stalls, self._tracked):
            self._add(replace(rows.empty(objective, _minute(now.unix_ns)), pressure=times))

    def add_records(self, halves: Halves, pairs: Pairs, now: Now) -> None:
        """Take in halves and what `LocalJoin.join()` made of them."""
        pair_at = {Role.CLIENT: pairs.client_at, Role.SERVER: pairs.server_at}
        for objectives, some in self._groups(halves):
            for objective in objectives:
                events = rows.Events(halves, some, pairs, pair_at[objective.role])
                self._add_exchanges(objective, events, now, peers=rows.bad_peers(objective, events))
        self._join(pairs, {Role.CLIENT: pairs.of_clients, Role.SERVER: pairs.of_servers}, _minute(now.unix_ns))

    def add_remote(self, pairs: Pairs, now: Now) -> None:
        """Take in pairs whose client halves were in earlier batches and whose server halves another node knows."""
        for objectives, some in self._groups(pairs.client):  # whose peers are counted already
            for objective in objectives:
                self._add_exchanges(
                    objective, rows.Events(pairs.client, some, pairs, np.arange(len(pairs))), now, peers={}
                )
        self._join(pairs, {Role.CLIENT: pairs.of_clients}, _minute(now.unix_ns))

    def add_evidence(self, signal: str, explains: Explains, found: Joined | Shared, now: Now) -> None:
        """Take in exchanges that a signal explains: what it says of the slowest; how many, if it knows their cost, or
        what came before them."""
        minute = _minute(now.unix_ns)
        self._add_summaries(signal, explains, found, minute)
        if not explains.knows_cost and explains.before is None:
            return
        both = found.half["target_set"].astype(np.int64) * 4 + found.half["role"]
        for group in np.unique(both).tolist():
            at = np.flatnonzero((both == group) & (found.half["excluded"] == Excluded.NONE))
            for objective in self._tracked.get((group // 4, group % 4), ()):
                if not explains.knows_cost:
                    if count := rows.waited_before(objective, explains, found, at):
                        self._add(replace(rows.empty(objective, minute), evidence={signal: count}))
                    continue
                self._add(rows.explained(objective, signal, found, at, minute))
                if row := rows.caused(objective, explains, found, at, minute):
                    self._add(row)

    def add_calls(self, called: Called, now: Now) -> None:
        """Take in what servers waited for: of the slowest, and of all over the threshold."""
        waited, server, minute = Waited(called), called.server, _minute(now.unix_ns)
        target_set = server.rec["target_set"]
        for number in np.unique(target_set).tolist():
            for objective in self._tracked.get((number, Role.SERVER), ()):
                slow = (target_set == number) & objective.slow(server.duration_ns)
                if waited_ns := waited.ns_by_peer(slow[called.of]):
                    self._add(replace(rows.empty(objective, minute), waited_ns=waited_ns))
        for row, objective, one in self._slowest(server.join_key, target_set, server.rec["role"]):
            told = replace(one, evidence=(), waited_for=waited.of(row))
            self._add(replace(rows.empty(objective, minute), slowest=(told,)))

    def add_evidence_lost(self, gained: Gained, now: Now) -> None:
        """Take in how many records of a signal its ring has refused."""
        lost: dict[tuple[int, int], int] = defaultdict(int)
        for key, count in zip(gained.keys, gained.values["lost_records"].tolist(), strict=True):
            lost[int(key["target_set"]), int(key["role"])] += count
        for set_and_role, count in lost.items():
            for objective in self._tracked.get(set_and_role, ()) if count else ():
                self._add(rows.evidence_lost(objective, gained.signal.switch, count, _minute(now.unix_ns)))

    def _add_summaries(self, signal: str, explains: Explains, found: Joined | Shared, minute: int) -> None:
        half = found.half
        for row, objective, slow in self._slowest(half["join_key"], half["target_set"], half["role"]):
            explained = replace(slow, evidence=rows.evidence_summaries(signal, explains, found, row), waited_for=())
            self._add(replace(rows.empty(objective, minute), slowest=(explained,)))

    def _slowest(
        self, join_key: NDArray[np.uint64], target_set: NDArray[np.uint32], role: NDArray[np.uint8]
    ) -> Iterator[tuple[int, TrackedObjective, SlowExchange]]:
        """Yield those of these halves that are among the slowest of an objective, by their place."""
        slowest = self._handed_over | _by_join_key(self._rows)
        join_keys = np.array([one for _, one in slowest], np.uint64)
        for row in np.flatnonzero(np.isin(join_key, join_keys)).tolist():
            for objective in self._tracked.get((int(target_set[row]), int(role[row])), ()):
                if slow := slowest.get((objective.key, int(join_key[row]))):
                    yield row, objective, slow

    def _join(self, pairs: Pairs, sides: Mapping[Role, _OfSide], minute: int) -> None:
        """Count what knows its other half, and let pairs correct what counts of the client's half alone say."""
        for role, of_side in sides.items():
            target_set = of_side(lambda half: half.rec["target_set"])
            found = groups([target_set])
            for group, row in enumerate(found.first.tolist()):
                for objective in self._tracked.get((int(target_set[row]), role), ()):
                    self._add(rows.joined(objective, minute, pairs, found.rows(group)))

    def _add_exchanges(self, objective: TrackedObjective, events: rows.Events, now: Now, peers: dict[str, int]) -> None:
        row = rows.empty(objective, _minute(now.unix_ns))
        so_far = self._rows.get((key_of(row), row.minute), row).slowest
        from_ns = so_far[-1].duration_ns if len(so_far) == sli.SLOWEST else 0
        slowest = rows.slowest(objective, events, from_ns=from_ns, offset_ns=now.offset_ns)
        if slowest or peers:
            self._add(replace(row, slowest=slowest, peers=peers))

    def _groups(self, halves: Halves) -> Iterator[tuple[Sequence[TrackedObjective], NDArray[np.intp]]]:
        """Yield the SLI events of each target set and role that objectives count, with those."""
        target_set, role, counted = halves.rec["target_set"], halves.rec["role"], halves.counted
        found = groups([target_set, role, counted])
        for group, row in enumerate(found.first.tolist()):
            objectives = self._tracked.get((int(target_set[row]), int(role[row])))
            if objectives and counted[row]:
                yield objectives, found.rows(group)

    def take(self, name_peer: Callable[[bytes], str]) -> tuple[SliRow, ...]:
        """Return all rows since the last call, oldest minute first. `name_peer`: packed address → a person's name."""
        taken = [_with_names(self._rows[at], name_peer) for at in sorted(self._rows, key=lambda at: at[1])]
        self._handed_over = _by_join_key(self._rows)
        self._rows.clear()
        return _with_trace_ids(taken, self._pair_key)

    def _add(self, row: SliRow) -> None:
        at = key_of(row), row.minute
        self._rows[at] = sli.merged(self._rows[at], row) if at in self._rows else row


def _by_key(found: Mapping[tuple[int, int], Sequence[TrackedObjective]]) -> dict[ObjectiveKey, TrackedObjective]:
    return {objective.key: objective for some in found.values() for objective in some}


def _by_join_key(
    of_minutes: Mapping[tuple[ObjectiveKey, int], SliRow],
) -> dict[tuple[ObjectiveKey, int], SlowExchange]:
    """Return the slowest exchanges of all rows by objective and join key."""
    found = [(key, slow) for (key, _), row in of_minutes.items() for slow in row.slowest]
    join_keys = keys.join_keys(_places([slow.trace_id for _, slow in found])).tolist()
    return {(key, join_key): slow for (key, slow), join_key in zip(found, join_keys, strict=True)}


def _with_trace_ids(rows: Sequence[SliRow], pair_key: bytes) -> tuple[SliRow, ...]:
    """Return the rows with the trace ids of their slowest exchanges, of which they knew the places until now."""
    slowest = [slow for row in rows for slow in row.slowest]
    places = dict.fromkeys(slow.trace_id for slow in slowest)
    places |= dict.fromkeys(one.trace_id for slow in slowest for one in slow.waited_for)
    if not places:
        return tuple(rows)
    trace_id = dict(zip(places, ids.to_hex(keys.trace_ids(_places(places), pair_key)), strict=True))

    def known(slow: SlowExchange) -> SlowExchange:
        calls = tuple(replace(one, trace_id=trace_id[one.trace_id]) for one in slow.waited_for)
        return replace(slow, trace_id=trace_id[slow.trace_id], waited_for=calls)

    return tuple(replace(row, slowest=tuple(map(known, row.slowest))) for row in rows)


def _places(in_hex: Collection[str]) -> NDArray[np.uint64]:
    """Return `Exchanges.place` of exchanges that have no trace id yet."""
    return np.frombuffer(bytes.fromhex("".join(in_hex)), np.uint64).reshape(len(in_hex), PLACE_WORDS).T


def _minute(unix_ns: int) -> int:
    return unix_ns // MINUTE_NS * 60


def _measured_ms(start_ns: int, end_ns: int) -> dict[int, int]:
    """Split a stretch of Unix time into its minutes."""
    minutes = range(_minute(start_ns), _minute(end_ns) + 1, 60)
    cuts = [start_ns, *(minute * 10**9 for minute in minutes[1:]), end_ns]
    ms = [cut // 10**6 for cut in cuts]  # differences of rounded cuts: the parts add up to the whole
    return {minute: ms[i + 1] - ms[i] for i, minute in enumerate(minutes)}


def _with_names(row: SliRow, name_peer: Callable[[bytes], str]) -> SliRow:
    peers: dict[str, int] = {}
    for address, count in row.peers.items():
        name = name_peer(bytes.fromhex(address))
        peers[name] = peers.get(name, 0) + count

    def with_port(packed: str) -> str:
        *address, high, low = bytes.fromhex(packed)
        name = name_peer(bytes(address))
        return f"[{name}]:{high << 8 | low}" if ":" in name else f"{name}:{high << 8 | low}"

    def named(slow: SlowExchange) -> SlowExchange:
        calls = tuple(replace(one, peer=with_port(one.peer)) for one in slow.waited_for)
        return replace(slow, peer=name_peer(bytes.fromhex(slow.peer)), waited_for=calls)

    waited_ns: dict[str, int] = {}
    for peer, ns in row.waited_ns.items():
        name = with_port(peer)
        waited_ns[name] = waited_ns.get(name, 0) + ns
    return replace(
        row,
        stage_ns={stage: ns for stage, ns in row.stage_ns.items() if ns},
        dominant={stage: count for stage, count in row.dominant.items() if count},
        peers=peers,
        slowest=tuple(map(named, row.slowest)),
        waited_ns=waited_ns,
    )
