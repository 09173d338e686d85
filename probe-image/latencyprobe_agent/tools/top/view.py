"""What is shown of a tally: which rows, in which order, and how the keys change that. Pure."""

import enum
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from latencyprobe.slo.evaluate import State
from latencyprobe_agent.measure.rules import TargetSet
from latencyprobe_agent.measure.stages import half_stages
from latencyprobe_agent.tools.top.tally import Group, Sums
from latencyprobe_agent.vocabulary.addresses import address
from latencyprobe_agent.vocabulary.records import Role

HELP = "q ends  space pauses  s sorts  / filters  Esc shows all"
HELP_OF_CLUSTER = "q ends  space pauses  s sorts  b by peer  / filters  Esc all"
_PAGE = 10  # rows
_SCROLLS = {"j": 1, "\x1b[B": 1, "k": -1, "\x1b[A": -1, "\x1b[6~": _PAGE, "\x1b[5~": -_PAGE}  # arrows, PgDn, PgUp
OTHERS = "(others)"


class Sort(enum.StrEnum):
    """By what rows are sorted, the largest first; of a cluster also by state, the worst first, then p99."""

    STATE = "state"
    P99 = "p99"
    P50 = "p50"
    RATE = "rate"
    ERRORS = "errors"


class By(enum.StrEnum):
    """What a row is of. Those of a host are by peer."""

    OBJECTIVE = "objective"
    PEER = "peer"


OF_HOST = (Sort.P99, Sort.P50, Sort.RATE, Sort.ERRORS)
OF_CLUSTER = (Sort.STATE, *OF_HOST)


class Row(NamedTuple):
    """One line. `rate`: RPCs a second; `errors`: the share that failed, of 1; `stages`: (stage, its share of the time,
    of 1), in their order.

    Of a cluster (cluster.py) it is of an objective, without process and peer: `errors` is the share of bad ones,
    `stages` those that dominated most of these; `other_*`: at the other end, `None` where that is not known. `peers`:
    the same of its worst peers, as far as that is known, the worst first and all others last; empty if it is not."""

    target: str
    side: str
    process: str
    peer: str
    rate: float
    p50_ns: int
    p99_ns: int
    errors: float
    stages: tuple[tuple[str, float], ...]
    namespace: str = ""
    objective: str = ""
    state: str = ""
    other_p50_ns: int | None = None
    other_p99_ns: int | None = None
    updated: str = ""
    peers: tuple["Row", ...] = ()

    @property
    def mostly(self) -> str:
        """The stage that takes most of the time."""
        return max(self.stages, key=lambda stage: stage[1])[0] if self.stages else ""

    @property
    def words(self) -> str:
        """All that a filter may find: of an objective also its peers."""
        own = (self.target, self.side, self.process, self.peer, self.objective, self.state)
        return " ".join((*own, *(one.peer for one in self.peers))).lower()

    @property
    def of(self) -> tuple[str, ...]:
        """Whose RPCs these are: several objectives of one target count the same."""
        probe = self.objective.rpartition("/")[0]
        return self.namespace, probe, self.target, self.side, self.process, self.peer


class View(NamedTuple):
    """`wanted`: rows without this text are left out; `typing`: it is being changed; `first`: the row at the top, as an
    index; `sorts`: what there is to sort by; `by`: what is a row of a cluster."""

    sort: Sort = Sort.P99
    wanted: str = ""
    typing: bool = False
    paused: bool = False
    ended: bool = False
    first: int = 0
    sorts: tuple[Sort, ...] = OF_HOST
    by: By = By.OBJECTIVE

    @property
    def of_cluster(self) -> bool:
        """Whether rows are of a cluster."""
        return Sort.STATE in self.sorts

    def pressed(self, key: str, rows: Iterable[Row] = ()) -> "View":
        """Return the view after a key. `rows`: all that there are."""
        if self.typing:
            if key in ("\n", "\r", "\x1b"):
                return self._replace(typing=False, wanted="" if key == "\x1b" else self.wanted)
            if key in ("\x7f", "\b"):
                return self._replace(wanted=self.wanted[:-1])
            return self._replace(wanted=self.wanted + key) if key.isprintable() else self
        if lines := _SCROLLS.get(key):
            return self._replace(first=max(0, min(self.first + lines, len(self.shown(rows)) - 1)))
        match key:
            case "q" | "\x03":
                return self._replace(ended=True)
            case " " | "p":
                return self._replace(paused=not self.paused)
            case "s":
                place = self.sorts.index(self.sort) + 1
                return self._replace(sort=self.sorts[place % len(self.sorts)], first=0)
            case "b" if self.of_cluster:
                return self._replace(by=By.OBJECTIVE if self.by is By.PEER else By.PEER, first=0)
            case "/":
                return self._replace(typing=True, wanted="", first=0)
            case "\x1b":
                return self._replace(wanted="", first=0)
        return self

    def shown(self, rows: Iterable[Row]) -> list[Row]:
        """Return the rows that are wanted, in order."""
        text = self.wanted.lower()
        return [row for row in self._ordered(rows) if text in row.words]

    def all_of(self, rows: Iterable[Row]) -> list[Row]:
        """Return the rows that there are: of peers, if that is asked for, and of what has none."""
        return [one for row in rows for one in (self.by is By.PEER and row.peers) or (row,)]

    def _ordered(self, rows: Iterable[Row]) -> list[Row]:
        if self.sort is Sort.STATE:  # peers stay with their objective
            return self.all_of(self._sorted(rows))
        return self._sorted(self.all_of(rows))

    def _sorted(self, rows: Iterable[Row]) -> list[Row]:
        return sorted(rows, key=lambda row: (*_KEYS[self.sort](row), -row.rate, row.of, row.objective))


def total(rows: Iterable[Row]) -> float:
    """Return how many RPCs a second all rows have together: those of servers, else of clients."""
    by_side: dict[str, dict[tuple[str, ...], float]] = {}
    for row in rows:
        by_side.setdefault(row.side, {})[row.of] = row.rate
    return sum(by_side.get("server", by_side.get("client", {})).values())


def rows(
    sums: Mapping[Group, Sums], sets: Mapping[int, TargetSet], name_process: Callable[[int], str], seconds: float
) -> list[Row]:
    """Return a row for each group of a tally over so many seconds. `sets`: `Rules.sets`."""
    found = []
    for group, of in sums.items():
        total_ns = int(of.stages_ns.sum()) or 1
        shares = (int(ns) / total_ns for ns in of.stages_ns)
        targets = sets[group.target_set].targets if group.target_set in sets else ()
        found.append(
            Row(
                target=", ".join(name.rpartition("/")[2] for name in targets) or "?",
                side="server" if group.role is Role.SERVER else "client",
                process=name_process(group.tgid) if group.tgid else OTHERS,
                peer=address(group.peer) if group.peer else OTHERS,
                rate=of.rpcs / seconds,
                p50_ns=of.quantile_ns("0.5"),
                p99_ns=of.quantile_ns("0.99"),
                errors=of.failed / of.rpcs,
                stages=tuple(zip(half_stages(group.role), shares, strict=True)),
            )
        )
    return found


_RANKS = {state.value: rank for rank, state in enumerate(State)}
_KEYS: Mapping[Sort, Callable[[Row], tuple[float, ...]]] = {
    Sort.STATE: lambda row: (_RANKS[row.state], -row.p99_ns),
    Sort.P99: lambda row: (-row.p99_ns,),
    Sort.P50: lambda row: (-row.p50_ns,),
    Sort.RATE: lambda row: (-row.rate,),
    Sort.ERRORS: lambda row: (-row.errors,),
}
