"""The LatencyProbes as the operator knows them: parsed, or with the reason why not.

Single ones come and go as kopf sees them; the whole list, each minute, makes good what a stale watch missed.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from latencyprobe import parsing, spec
from latencyprobe.errors import SpecError
from latencyprobe_operator.cluster.objects import Key
from latencyprobe_operator.status.reconcile import Status

RESYNC_S = 60.0
_REMEMBERED = 10_000  # deleted uids that a list under way may still hold


class Entry(msgspec.Struct, frozen=True):
    """A LatencyProbe. Exactly one of `probe` and `error` is set."""

    uid: str
    generation: int
    probe: spec.LatencyProbe | None = None
    error: SpecError | None = None


class Registry:
    """LatencyProbes by namespace and name. `suspended_by`: what an administrator has suspended all of them by, and how
    to take it back. Each of `changed` is called when an entry comes, changes or goes."""

    def __init__(self, *changed: Callable[[], None]) -> None:
        self.entries: dict[Key, Entry] = {}
        self.written: dict[Key, Status] = {}
        self.suspended_by = ""
        self._changed = changed
        self._deleted: dict[str, None] = {}

    @property
    def probes(self) -> dict[Key, spec.LatencyProbe]:
        """The valid ones, as they are to be followed now."""
        valid = {key: entry.probe for key, entry in self.entries.items() if entry.probe is not None}
        return {key: _suspended(probe) for key, probe in valid.items()} if self.suspended_by else valid

    def put(self, document: Mapping[str, Any]) -> Entry:
        """Take a LatencyProbe as the API server has it; what we know to be newer, or deleted, stays as it is."""
        meta = document["metadata"]
        key = (meta["namespace"], meta["name"])
        known = self.entries.get(key)
        if known is not None and known.uid == meta["uid"] and known.generation >= meta["generation"]:
            return known
        entry = _parsed(document)
        if entry.uid not in self._deleted:
            self.entries[key] = entry
            if known is None or known.uid != entry.uid:
                self.written[key] = document.get("status") or {}
            self._tell()
        return entry

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
        if known is not None and known.uid == uid:
            del self.entries[key]
            self.written.pop(key, None)
            self._tell()

    def _tell(self) -> None:
        for changed in self._changed:
            changed()

    async def resync(self, read: Callable[[], AsyncIterator[Mapping[str, Any]]]) -> None:
        """Take the whole list that `read` yields. What came or went while it is read is newer than the list; else the
        list is right: what is older in it than here, or was deleted, has come back with an etcd that was restored."""
        before, deleted = dict(self.entries), dict(self._deleted)
        async for document in read():
            meta = document["metadata"]
            known = before.pop((meta["namespace"], meta["name"]), None)
            self._restored(meta, known, was_deleted=meta["uid"] in deleted)
            self.put(document)
        for key, entry in before.items():
            self.drop(key, entry.uid)

    def _restored(self, meta: Mapping[str, Any], known: Entry | None, *, was_deleted: bool) -> None:
        """Make room for a LatencyProbe that has come back. All statuses may be older then, and are written again."""
        key = (meta["namespace"], meta["name"])
        older = known is not None and known.uid == meta["uid"] and known.generation > meta["generation"]
        if (older and self.entries.get(key) is known) or was_deleted:
            self._deleted.pop(meta["uid"], None)
            self.entries.pop(key, None)
            self.written.clear()


def _suspended(probe: spec.LatencyProbe) -> spec.LatencyProbe:
    return replace(probe, spec=replace(probe.spec, suspend=True))


def _parsed(document: Mapping[str, Any]) -> Entry:
    meta = document["metadata"]
    plain = {k: document[k] for k in ("apiVersion", "kind", "spec") if k in document}
    named = {k: meta[k] for k in ("namespace", "name", "uid", "generation")}
    try:
        return Entry(meta["uid"], meta["generation"], probe=parsing.parse({**plain, "metadata": named}))
    except SpecError as error:
        return Entry(meta["uid"], meta["generation"], error=error)
