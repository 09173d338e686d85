"""The signal `unsent`: bytes that an end had written and its kernel had not sent when the last send call had returned.

It has no programs and no ring: its records are part of the EXCHANGE of the half that held them, so they are there when
the exchange is. Made by `measure.unsent`.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from latencyprobe import unsent
from latencyprobe_agent.signals.evidence import Evidence, Explains, Sample
from latencyprobe_agent.vocabulary import conventions as names
from latencyprobe_agent.vocabulary.conventions import Attribute, AttributeValue
from latencyprobe_agent.vocabulary.records import EXCHANGE, HeldBound, Role

_FLOW = ("cgroup_id", "target_set", "role")
# `flow`: whose they are, as in FLOW_HEADER; `holder`: the Role of the end that held them. `adjusted_count`: how many
# exchanges each stands for.
UNSENT = np.dtype(
    [
        ("flow", [*[(name, EXCHANGE[name]) for name in _FLOW], ("owner_tgid", "u4")]),
        *[("held_ns", "i8"), ("adjusted_count", "i8"), ("unsent_bytes", "u4")],
        *[("unsent_reason", "u1"), ("held_bound", "u1"), ("holder", "u1")],
    ]
)
# by code; a code of another version is the last one
_REASONS = np.array(["", *(reason.name for reason in unsent.REASONS), unsent.OTHER])
_BOUNDS = np.array([bound.name.lower() for bound in HeldBound])
_ENDS = {Role.CLIENT: "client", Role.SERVER: "server"}


def held(rec: NDArray[np.void]) -> NDArray[np.intp]:
    """Return intp[m]: which EXCHANGE records say that bytes were held."""
    return np.flatnonzero(rec["unsent_reason"])


def columns(rec: NDArray[np.void], held_ns: NDArray[np.int64], adjusted_count: NDArray[np.int64]) -> Evidence:
    """Return EXCHANGE records of halves that held bytes as evidence. `held_ns`: for how long, or the bound."""
    found = np.zeros(len(rec), UNSENT)
    for name in _FLOW:
        found["flow"][name] = rec[name]
    found["flow"]["owner_tgid"] = np.where(rec["writer_tgid"], rec["writer_tgid"], rec["reader_tgid"])
    for name in ("unsent_bytes", "unsent_reason"):
        found[name] = rec[name]
    found["held_bound"] = np.minimum(rec["held_bound"], max(HeldBound))
    found["holder"] = rec["role"]
    found["held_ns"], found["adjusted_count"] = held_ns, adjusted_count
    return Evidence(found, np.zeros(len(found), []), np.ones(len(found), np.bool_))


def reasons(records: NDArray[np.void]) -> NDArray[np.str_]:
    """Return the name of each record's reason."""
    found: NDArray[np.str_] = _REASONS[np.minimum(records["unsent_reason"], len(_REASONS) - 1)]
    return found


def samples(evidence: Evidence) -> Sequence[Sample]:
    """Return how many exchanges were held, and for how long, by reason."""
    rec, every = evidence.rec, np.arange(len(evidence))
    direction = np.where(rec["holder"] == Role.CLIENT, "request", "response")
    by = {names.DIRECTION: direction, names.REASON: reasons(rec)}
    held_s = rec["held_ns"] * rec["adjusted_count"] / 1e9
    return [
        Sample(names.TCP_UNSENT_EXCHANGES, every, rec["adjusted_count"], by),
        Sample(names.TCP_UNSENT_TIME, every, held_s, by | {names.BOUND: _BOUNDS[rec["held_bound"]]}),
    ]


def attributes(records: NDArray[np.void]) -> Mapping[Attribute, AttributeValue]:
    """Return the attributes of a span, from what either end held: of both, what was held longer."""
    one = records[records["held_ns"].argmax()]
    return {
        names.UNSENT_SIZE: int(one["unsent_bytes"]),
        names.UNSENT_REASON: str(reasons(one.reshape(1))[0]),
        names.UNSENT_HELD: int(one["held_ns"]) / 1e9,
        names.UNSENT_BOUND: str(_BOUNDS[one["held_bound"]]),
        names.UNSENT_HOLDER: _ENDS.get(Role(one["holder"]), ""),
    }


def describe(record: np.void, new_ns: int) -> list[tuple[str, int, int]]:
    """Return who held bytes and why, how many, and for how long, for a list of slow exchanges."""
    (reason,) = reasons(record.reshape(1))
    what = unsent.what(_ENDS.get(Role(record["holder"]), ""), str(reason), int(record["held_bound"]))
    return [(what, int(record["unsent_bytes"]), new_ns)]


def _no_fields(_: np.void) -> Mapping[Attribute, AttributeValue]:
    return {}


EXPLAINS = Explains(None, _no_fields, samples, describe, attributes, costs=True)
