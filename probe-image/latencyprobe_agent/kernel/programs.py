"""The measuring programs: give them rules, read their counts, end idle exchanges.

Loading, records and losses are as for every signal (`attached.py`).
"""

import math
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from latencyprobe.errors import Unsupported
from latencyprobe_agent.kernel import counts, layouts
from latencyprobe_agent.kernel.attached import Attached, counters, u32
from latencyprobe_agent.kernel.clock import READING_ERROR_NS, boot_offset_ns
from latencyprobe_agent.kernel.kept_room import KeptRoom
from latencyprobe_agent.kernel.loader import Loaded
from latencyprobe_agent.kernel.share_numbers import ShareNumbers
from latencyprobe_agent.kernel.unseen_ends import UnseenEnds
from latencyprobe_agent.measure.canary import CANARY_GROUP, CANARY_SET
from latencyprobe_agent.measure.counts import COUNTS, Shards
from latencyprobe_agent.measure.matches import ANY_ADDRESS
from latencyprobe_agent.measure.rules import Rules
from latencyprobe_agent.measure.unowned import unowned
from latencyprobe_agent.signals.table import EXCHANGES, Signal
from latencyprobe_agent.vocabulary.records import (
    CONFIG,
    COUNTS_KEY,
    EVIDENCE_COUNTS,
    EXCHANGE,
    EXCHANGE_COUNTS,
    SCOPE_FILTER_FACTOR,
    SCOPE_FILTER_WORDS,
    WINDOW_SHIFT,
    Census,
    Lost,
    RuleSide,
)

IN_RING = EXCHANGE.itemsize + 8  # bytes of a record, with the ring's header of it
_CANARY_SCOPE = (CANARY_GROUP, CANARY_GROUP)


class Programs(Attached):
    """The programs of `exchange.bpf.c`. Nothing is measured before the first `apply()`."""

    def __init__(self, loaded: Loaded, signal: Signal) -> None:
        super().__init__(loaded, signal)
        self._maps = {name: self.map(name) for name in ("target_sets", "rules", "scopes", "config", "scope_filter")}
        self._counts = self.map("counts")
        self._written: dict[str, dict[bytes, bytes]] = {name: {} for name in self._maps}
        self._generation = 0
        self._config = np.zeros((), CONFIG)
        self._shards = Shards()
        self._unseen_ends = UnseenEnds(partial(counters, self.map("census"), Census))
        self._kept_room = KeptRoom(self._counts)
        self._share_numbers = ShareNumbers()
        self._in_force: tuple[object, Mapping[str, int]] = None, {}  # rules, and the number of each namespace's share

    @classmethod
    def open(cls, object_path: Path, *, ring_bytes: int | None = None) -> Self:
        """Load and attach, as `Attached.load()` does."""
        return cls(
            cls.load(object_path, EXCHANGES, ring_bytes, sizes={"counts": counts.entries(EXCHANGE_COUNTS)}), EXCHANGES
        )

    def apply(
        self,
        rules: Rules,
        *,
        idle_timeout_ns: int,
        own_tgid: int,
        owner_by_process: bool,
        records_per_second: int = 0,
        user_stacks: bool = True,
        http2: bool = False,
        own_cgroups: Iterable[int] = (),
    ) -> None:
        """Put `rules` in force: from the next event on, every socket is decided by them, and no later by older ones.

        Connections that they do not name any more are let go before it returns.

        `rules` must be compiled with those in force as `previous`. `idle_timeout_ns`: ends a complete exchange;
        `own_tgid`: this process in the root PID namespace, 0 for none; `owner_by_process`: count per process instead of
        per cgroup; `records_per_second`: above it records are sampled out, 0 for never; `user_stacks`: those of
        programs are taken where targets ask for them; `http2`: `Http2Programs` are attached beside these;
        `own_cgroups`: those that the canary's connections are of, as far as no target selects them.

        Each target set has room for what nobody has room for, but for processes: only namespaces take it from another.
        Raises Unsupported, with nothing changed, when a map is too small.
        """
        rules_in_force, shares = self._in_force
        others = rules.rules is not rules_in_force  # else only cgroups have come or gone
        if others:
            shares = self._share_numbers.of(one.namespace for one in rules.in_force.values())
        needed = {
            "target_sets": {
                u32(index): layouts.target_set(one, shares.get(one.namespace, 0), user_stacks=user_stacks, http2=http2)
                for index, one in rules.sets.items()
            }
        }
        if others:
            needed["rules"] = {layouts.rule_key(*match): u32(index) for match, index in rules.rules.items()}
        scopes = {**dict.fromkeys(own_cgroups, _CANARY_SCOPE), **rules.scopes}
        needed["scopes"] = {np.uint64(cgroup).tobytes(): layouts.scope(groups) for cgroup, groups in scopes.items()}
        for name, entries in needed.items():
            room = self._maps[name].max_entries
            if len(self._written[name].keys() | entries.keys()) > room:
                raise Unsupported(
                    "PlanTooLarge", f"the plan of this node needs {len(entries)} {name}, there is room for {room}"
                )
        if others:
            self._in_force = None, {}  # until all are written
            self._kept_room.follow(() if owner_by_process else unowned(rules))
        for name, entries in needed.items():
            self._write(name, entries)
        self._filter(self._written["scopes"], everything=any(self._config["host"].tolist()) or any(rules.host))
        self._remove("scopes", needed["scopes"])
        config = np.zeros((), CONFIG)
        config["idle_timeout_ns"] = idle_timeout_ns
        config["own_tgid"], config["owner_by_process"] = own_tgid, owner_by_process
        config["host"], config["boot_offset_ns"] = rules.host, boot_offset_ns()
        config["wakeup_bytes"] = self.ring_bytes // 4
        config["records_per_window"] = math.ceil(records_per_second * (1 << WINDOW_SHIFT) / 1e9)
        config["share_records"] = share_records(self.ring_bytes, len(shares))
        # Twice: the generation is the first word of the entry, and a program that saw it new with the old host groups
        # would keep that decision.
        for generation in (self._generation, self._generation + 1):
            config["generation"] = generation
            self._maps["config"].update(u32(0), config.tobytes())
        self._generation += 1
        self._config = config
        self._filter(needed["scopes"], everything=any(rules.host))
        self.flush()  # lets go of sockets that pass the filter no longer
        if others:
            self._remove("rules", needed["rules"])
        self._in_force = rules.rules, shares

    def tell_of_canary(self, port: int) -> None:
        """Tell of connections to this port at both ends, where they are of `own_cgroups`: a record of each exchange."""
        self._maps["target_sets"].update(u32(CANARY_SET), layouts.canary_set())
        for side in (RuleSide.LOCAL, RuleSide.PEER):
            self._maps["rules"].update(layouts.rule_key(ANY_ADDRESS, CANARY_GROUP, port, side), u32(CANARY_SET))

    @property
    def tells_of_canary(self) -> bool:
        """Whether any of `own_cgroups` is measured for that alone."""
        return layouts.scope(_CANARY_SCOPE) in self._written["scopes"].values()

    def flush(self) -> None:
        """Do what is due once a second: end what has been idle; follow the boot clock, which a suspend has moved."""
        offset_ns = boot_offset_ns()
        if abs(offset_ns - int(self._config["boot_offset_ns"])) > READING_ERROR_NS:
            self._config["boot_offset_ns"] = offset_ns
            self._maps["config"].update(u32(0), self._config.tobytes())
        self._unseen_ends.count_around(super().flush)

    def lost(self) -> dict[str, int]:
        """Return what was lost, by reason, as `Attached.lost()` does; ends that nobody saw as of the last `flush()`."""
        lost = super().lost()
        lost[Lost.UNSEEN_END.name.lower()] += self._unseen_ends.count
        return lost

    def _write(self, name: str, entries: dict[bytes, bytes]) -> None:
        written = self._written[name]
        for key, value in entries.items():
            if written.get(key) != value:
                self._maps[name].update(key, value)
                written[key] = value

    def _remove(self, name: str, entries: dict[bytes, bytes]) -> None:
        for key in self._written[name].keys() - entries.keys():
            self._maps[name].delete(key)
            del self._written[name][key]

    def _filter(self, cgroups: Iterable[bytes], *, everything: bool) -> None:
        bits = np.full(SCOPE_FILTER_WORDS * 64, everything)
        low = np.frombuffer(b"".join(cgroups), np.uint64).astype(np.uint32)
        bits[low * np.uint32(SCOPE_FILTER_FACTOR) >> np.uint32(16)] = True
        self._maps["scope_filter"].update(u32(0), np.packbits(bits, bitorder="little").tobytes())

    def counts(self, *, everything: bool = True) -> tuple[NDArray[np.void], NDArray[np.void]]:
        """Return (COUNTS_KEY[n], `measure.counts.COUNTS`[n]): added up over shards, growing since `open()`.

        Without `everything` nobody looks for what found no room as long as there is room for all."""
        used = self._kept_room.used(dict.fromkeys(self._counts.keys()), everything=everything)
        keys, totals = counts.read(self._counts, EXCHANGE_COUNTS, self._shards.add_up, used)
        told = ((keys["owner"] != 0) | totals["classes"].any(axis=1)) & (keys["target_set"] != CANARY_SET)
        return keys[told], totals[told]

    def unaccounted(self) -> dict[int, int]:
        """Return what ended and is in no count, or could not be followed, by target set of which there is any, since
        `open()`."""
        of, one, found = self.map("unaccounted"), np.zeros(1, np.uint64), {}
        for number in self._written["target_sets"]:
            of.lookup(number, one.view(np.uint8).data)
            if one[0]:
                found[int(np.frombuffer(number, np.uint32)[0])] = int(one[0])
        return found

    def forget(self, keys: NDArray[np.void]) -> None:
        """Take these COUNTS_KEYs out of the kernel's table; one that comes again starts from 0."""
        counts.forget(self._counts, keys)
        self._kept_room.forget(keys)
        for key in keys:
            self._shards.forget(key.tobytes())

    def let_go(self) -> None:
        """Give back room that is kept for target sets which no rule names any more. To be called once a minute."""
        self._kept_room.let_go()


class FakePrograms:
    """`Programs` for tests: `batches` (EXCHANGE[n] each) wait to be drained, `rows` are the counts by COUNTS_KEY, and
    `gained` (EVIDENCE_COUNTS) those of a signal.

    `unaccounted_for`: what is in none, by target set; `applied`: the rules that were put in force, in order; `closed`:
    detached. Nothing waits and nothing is attached.
    """

    def __init__(self, *batches: NDArray[np.void]) -> None:
        self.batches = list(batches)
        self.rows: dict[bytes, NDArray[np.void]] = {}
        self.gained: dict[bytes, NDArray[np.void]] = {}
        self.lost_records: dict[str, int] = {"counts": 0, "storage": 0, "ring_full": 0}
        self.unaccounted_for: dict[int, int] = {}
        self.applied: list[Rules] = []
        self.closed = False
        self.tells_of_canary = False
        self.variants: dict[str, str] = {}
        self.ring_bytes = 1 << 20

    def apply(self, rules: Rules, *, own_cgroups: Iterable[int] = (), **_: object) -> None:
        """Remember the rules."""
        self.applied.append(rules)
        self.tells_of_canary = bool(set(own_cgroups) - rules.scopes.keys())

    def tell_of_canary(self, port: int) -> None:
        """Tell of nothing."""

    def drain(self, limit: int) -> NDArray[np.void]:
        """Return the next batch; none may be larger than `limit`."""
        return self.batches.pop(0) if self.batches else np.zeros(0, EXCHANGE)

    def counts(self, *, everything: bool = True) -> tuple[NDArray[np.void], NDArray[np.void]]:
        """Return `rows`."""
        values = np.concatenate([np.zeros(0, COUNTS), *self.rows.values()])
        return np.frombuffer(b"".join(self.rows), COUNTS_KEY), values

    def unaccounted(self) -> dict[int, int]:
        """Return `unaccounted_for`."""
        return self.unaccounted_for

    def forget(self, keys: NDArray[np.void]) -> None:
        """Drop rows."""
        for key in keys:
            del self.rows[key.tobytes()]

    def let_go(self) -> None:
        """Keep no room."""

    def evidence_counts(self) -> tuple[NDArray[np.void], NDArray[np.void]]:
        """Return `gained`."""
        values = np.concatenate([np.zeros(0, EVIDENCE_COUNTS), *self.gained.values()])
        return np.frombuffer(b"".join(self.gained), COUNTS_KEY), values

    def forget_evidence(self, keys: NDArray[np.void]) -> None:
        """Drop `gained`."""
        for key in keys:
            del self.gained[key.tobytes()]

    def lost(self) -> dict[str, int]:
        """Return `lost_records`, which cannot be read any more once closed."""
        assert not self.closed
        return self.lost_records

    def waiting(self) -> int:
        """Return 0."""
        return 0

    def wait(self, timeout_s: float) -> None:
        """Return at once."""

    def flush(self) -> None:
        """End nothing."""

    def close(self) -> None:
        """Detach."""
        self.closed = True


def share_records(ring_bytes: int, namespaces: int) -> int:
    """Return how many records of each namespace the second half of a ring holds in a window, 0 for no limit. The
    reader, woken at a quarter, comes within two windows, so in parts of three, and there was room for all shares."""
    return max(1, ring_bytes // 6 // IN_RING // namespaces) if namespaces > 1 else 0
