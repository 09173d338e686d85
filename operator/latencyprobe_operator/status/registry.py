"""The LatencyProbes as the operator knows them: parsed, or with the reason why not.

Single ones come and go as kopf sees them; the whole list, each minute, makes good what a stale watch missed.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from latencyprobe import parsing, spec
from latencyprobe.errors import SpecError
from latencyprobe_operator.cluster.namespace_room import NamespaceRoom
from latencyprobe_operator.cluster.objects import Key
from latencyprobe_operator.status.objective_room import ObjectiveRoom
from latencyprobe_operator.status.reconcile import Status
from latencyprobe_operator.status.stored import holds, stored

RESYNC_S = 60.0
MOST_BYTES = 64 << 10  # of a spec as JSON: 32 targets with as many objectives are 8 KiB
ROOM = 64 << 20  # bytes: an eighth of the chart's limit of memory; 1,000 LatencyProbes of 20 objectives take 22 MB
KIND = "latencyprobes"
_ENTRY_BYTES = 4_096  # of one, beside its spec: its status above all
_SPEC_BYTES = 5  # of memory for each of a spec as JSON
_REMEMBERED = 10_000  # deleted uids that a list under way may still hold
_CROWDED = (
    "the LatencyProbes of this namespace take all of the operator's memory that they may have: make fewer or smaller "
    "ones, or raise operator.resources.limits.memory in the chart"
)


class NoRoom(SpecError):  # noqa: N818 - a state of the cluster, as its reason in the status
    """There is no room for a LatencyProbe beside the others, however right it is."""

    reason = "NoRoom"


class Entry(msgspec.Struct, frozen=True):
    """A LatencyProbe. Exactly one of `probe` and `error` is set. `size`: the bytes of memory that it takes, about, 0
    where its namespace has no room for it."""

    uid: str
    generation: int
    probe: spec.LatencyProbe | None = None
    error: SpecError | None = None
    size: int = 0

    def covers(self, meta: Mapping[str, Any]) -> bool:
        """Return whether this is all that a LatencyProbe with such metadata can be here."""
        if self.uid != meta["uid"]:
            return False
        return self.generation > meta["generation"] or (self.generation == meta["generation"] and self.size > 0)


class Registry:
    """LatencyProbes by namespace and name. `suspended_by`: what an administrator has suspended all of them by, and how
    to take it back. Each of `changed` is called when an entry comes, changes or goes. `room`: for how many bytes of
    them there is some, by namespace; `objectives`: for how many objectives."""

    def __init__(
        self,
        *changed: Callable[[], None],
        room: int = ROOM,
        objectives: ObjectiveRoom | None = None,
    ) -> None:
        self.entries: dict[Key, Entry] = {}
        self.written: dict[Key, Status] = {}
        self.suspended_by = ""
        self._changed = changed
        self._deleted: dict[str, None] = {}
        self._room = NamespaceRoom(room, "LatencyProbes")
        self._objectives = ObjectiveRoom() if objectives is None else objectives
        self._without: dict[Key, Entry] = {}  # as they are once there is room for their objectives

    @property
    def probes(self) -> dict[Key, spec.LatencyProbe]:
        """The valid ones, as they are to be followed now. One without room for its objectives is none from here on."""
        self._share_out()
        valid = {key: entry.probe for key, entry in self.entries.items() if entry.probe is not None}
        return {key: _suspended(probe) for key, probe in valid.items()} if self.suspended_by else valid

    @property
    def refused(self) -> dict[Key, str]:
        """Those that are not followed, each with its uid."""
        self._share_out()
        return {key: entry.uid for key, entry in self.entries.items() if entry.probe is None}

    @property
    def without_room(self) -> int:
        """How many there is no room for, as far as they are known."""
        return len(self._without) + sum(map(len, self._room.left_out.values()))

    def put(self, document: Mapping[str, Any]) -> None:
        """Take a LatencyProbe as the API server has it; what we know to be newer, or deleted, stays as it is."""
        meta = document["metadata"]
        key = (meta["namespace"], meta["name"])
        known = self.entries.get(key)
        if meta["uid"] in self._deleted or (known is not None and known.covers(meta)):
            return
        entry = self._taken(key, document, known)
        if entry is known:
            return
        self._forget(key)
        if entry is None:
            self.written.pop(key, None)
        else:
            self.entries[key] = entry
            self._objectives.ask(key, len(entry.probe.spec.objectives) if entry.probe is not None else 0)
            if known is None or known.uid != entry.uid:
                self.written[key] = stored(document.get("status"))
        self._tell()

    def _taken(self, key: Key, document: Mapping[str, Any], known: Entry | None) -> Entry | None:
        """Return a LatencyProbe as far as its namespace has room; None where it is not even told that it has none."""
        meta, spec_bytes = document["metadata"], len(msgspec.json.encode(document.get("spec")))
        size = _ENTRY_BYTES + _SPEC_BYTES * spec_bytes * (spec_bytes <= MOST_BYTES)
        if self._room.take(key[0], KIND, key[1], size, known.size if known is not None else 0):
            return replace(_parsed(document, spec_bytes), size=size)
        if (KIND, key[1]) not in self._room.left_out[key[0]]:
            return None
        if known is not None and (known.uid, known.generation, known.size) == (meta["uid"], meta["generation"], 0):
            return known
        return Entry(meta["uid"], meta["generation"], error=NoRoom("metadata.namespace", _CROWDED))

    def _forget(self, key: Key) -> None:
        self.entries.pop(key, None)
        self._without.pop(key, None)
        self._objectives.ask(key, 0)

    def happened(self, kind: str | None, document: Mapping[str, Any]) -> None:
        """Take an event of a watch. `kind`: its type, None for what there was before."""
        meta = document["metadata"]
        if kind == "DELETED":
            self.drop((meta["namespace"], meta["name"]), meta["uid"])
        else:
            self.put(document)

    def drop(self, key: Key, uid: str) -> None:
        """Forget a deleted LatencyProbe; one of the same name that was made since is another."""
        self._deleted[uid] = None
        if len(self._deleted) > _REMEMBERED:
            del self._deleted[next(iter(self._deleted))]
        known = self.entries.get(key)
        if known is None or known.uid == uid:
            self._room.gone(key[0], KIND, key[1], known.size if known is not None else 0)
        if known is not None and known.uid == uid:
            self._forget(key)
            self.written.pop(key, None)
            self._tell()

    def _tell(self) -> None:
        for changed in self._changed:
            changed()

    async def resync(self, read: Callable[[], AsyncIterator[Mapping[str, Any]]]) -> None:
        """Take the whole list that `read` yields. What came or went while it is read is newer than the list; else the
        list is right: what is older in it than here, or was deleted, has come back with an etcd that was restored. So
        has a status that is not what was written before, if nobody has changed it: it is written again."""
        before, deleted, written = dict(self.entries), dict(self._deleted), dict(self.written)
        async for document in read():
            meta = document["metadata"]
            key = (meta["namespace"], meta["name"])
            known = before.pop(key, None)
            self._restored(meta, known, was_deleted=meta["uid"] in deleted)
            self.put(document)
            status = self.written.get(key)
            if status and status is written.get(key) and not holds(document.get("status"), status):
                self.written[key] = stored(document.get("status"))
        for key, entry in before.items():
            self.drop(key, entry.uid)
        if self._objectives.look():
            self._tell()

    def _restored(self, meta: Mapping[str, Any], known: Entry | None, *, was_deleted: bool) -> None:
        """Make room for a LatencyProbe that has come back. All statuses may be older then, and are written again."""
        key = (meta["namespace"], meta["name"])
        older = known is not None and known.uid == meta["uid"] and known.generation > meta["generation"]
        if (older and self.entries.get(key) is known) or was_deleted:
            self._deleted.pop(meta["uid"], None)
            self._room.gone(key[0], KIND, key[1], known.size if known is not None else 0)
            self._forget(key)
            self.written.clear()

    def _share_out(self) -> None:
        """Bring the entries up to date with who has room for its objectives."""
        out = self._objectives.out()
        for key in self._without.keys() - out:
            self.entries[key] = self._without.pop(key)
        for key in out - self._without.keys():
            entry = self._without[key] = self.entries[key]
            self.entries[key] = replace(entry, probe=None, error=NoRoom("spec.objectives", self._objectives.why(key)))


def _suspended(probe: spec.LatencyProbe) -> spec.LatencyProbe:
    return replace(probe, spec=replace(probe.spec, suspend=True))


def _parsed(document: Mapping[str, Any], spec_bytes: int) -> Entry:
    meta = document["metadata"]
    if spec_bytes > MOST_BYTES:
        problem = f"{spec_bytes:,} bytes as JSON: at most {MOST_BYTES:,}: split it into several LatencyProbes"
        return Entry(meta["uid"], meta["generation"], error=SpecError("spec", problem))
    plain = {k: document[k] for k in ("apiVersion", "kind", "spec") if k in document}
    named = {k: meta[k] for k in ("namespace", "name", "uid", "generation")}
    try:
        return Entry(meta["uid"], meta["generation"], probe=parsing.parse({**plain, "metadata": named}))
    except SpecError as error:
        return Entry(meta["uid"], meta["generation"], error=error)
