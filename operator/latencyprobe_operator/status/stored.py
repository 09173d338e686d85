"""A status as the API server has it, read leniently: whoever may write statuses in his own namespace may have left it.

Pure.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from latencyprobe_operator.status.reconcile import Status


class _Condition(msgspec.Struct, rename="camel"):
    type: str
    status: str
    reason: str
    message: str
    last_transition_time: str

    def __post_init__(self) -> None:
        # the API server takes more for a date-time: a `t` and `z`, the year 0, +99:99
        if datetime.fromisoformat(self.last_transition_time).tzinfo is None:
            raise ValueError("a time without a zone")


class _Objective(msgspec.Struct):
    name: str
    state: str


_ENTRIES: dict[str, type] = {"conditions": _Condition, "objectives": _Objective}


def stored(document: object) -> Status:
    """Return a stored status without the conditions and objectives that have another form than what we write: those
    are as if there were none, and are written anew. Empty where it is no status at all."""
    if not isinstance(document, Mapping):
        return {}
    lists = {
        field: [one for one in _listed(document[field]) if _is(one, kind)]
        for field, kind in _ENTRIES.items()
        if field in document
    }
    return {**document, **lists}


def holds(document: object, written: Any) -> bool:
    """Return whether a stored status, or a part of one, says what was written. Fields that it has not at all say
    nothing: a CRD of another version may not know them."""
    if isinstance(written, Mapping):
        fields = document if isinstance(document, Mapping) else {}
        return bool(fields) and all(holds(fields[name], value) for name, value in written.items() if name in fields)
    if isinstance(written, list):
        return all(any(holds(one, entry) for one in _listed(document) if _same(one, entry)) for entry in written)
    return bool(document == written)


def _same(one: object, other: Mapping[str, Any]) -> bool:
    """Return whether two entries of a list are about the same, by the key that such a list has."""
    return isinstance(one, Mapping) and all(one.get(key) == other.get(key) for key in ("type", "name"))


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _is(value: Any, kind: type) -> bool:
    try:
        msgspec.convert(value, kind)
    except (msgspec.ValidationError, ValueError):  # ValueError: half a character in a name
        return False
    return True
