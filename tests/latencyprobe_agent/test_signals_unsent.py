"""Records of bytes that waited to be sent: what metrics, spans and lists say of them."""

import numpy as np
import pytest

from latencyprobe import unsent
from latencyprobe_agent.signals.unsent import EXPLAINS, columns, held
from latencyprobe_agent.vocabulary import conventions as names
from latencyprobe_agent.vocabulary.records import HeldBound, Role, UnsentReason
from tests.support.exchanges import exchanges

MS = 1_000_000


def evidence(role=Role.SERVER, count=1, weight=1, **fields):
    records = exchanges(count, role, **fields)
    return columns(records, records["held_ns"].astype(np.int64), np.full(count, weight))


def test_codes_of_the_kernel_have_their_words():
    reasons = [(one.value, one.name.lower()) for one in UnsentReason if one is not UnsentReason.NONE]
    assert reasons == [(reason.code, reason.name) for reason in unsent.REASONS]
    bounds = [one.name.lower().replace("_", " ") for one in HeldBound]
    assert ["exact", *unsent.BOUNDS[1:]] == bounds


def test_only_records_with_a_reason_say_that_bytes_were_held():
    records = exchanges(3, Role.CLIENT, unsent_reason=np.array([0, UnsentReason.CWND, 0]))
    assert [1] == held(records).tolist()


def test_a_list_of_slow_exchanges_says_who_held_how_many_bytes_and_for_how_long():
    fields = {"unsent_bytes": 500, "held_ns": 41 * MS, "unsent_reason": UnsentReason.NAGLE}
    (record,) = evidence(**fields).rec
    assert [("server nagle", 500, 41 * MS)] == EXPLAINS.describe(record, 41 * MS)
    (record,) = evidence(Role.CLIENT, **fields, held_bound=HeldBound.AT_MOST).rec
    assert [("client nagle at most", 500, 41 * MS)] == EXPLAINS.describe(record, 41 * MS)


def test_a_span_says_what_was_held_longest():
    found = evidence(
        count=2, unsent_bytes=np.array([7, 9]), held_ns=np.array([2 * MS, 3 * MS]),
        unsent_reason=np.array([UnsentReason.CORK, UnsentReason.WINDOW]), held_bound=HeldBound.AT_LEAST,
    )  # fmt: skip
    assert EXPLAINS.attributes(found.rec) == {
        names.UNSENT_SIZE: 9,
        names.UNSENT_REASON: "window",
        names.UNSENT_HELD: 0.003,
        names.UNSENT_BOUND: "at_least",
        names.UNSENT_HOLDER: "server",
    }


def test_metrics_count_exchanges_and_their_time_by_reason_for_what_they_stand_for():
    exchanged, time = EXPLAINS.samples(evidence(Role.CLIENT, 1, 4, held_ns=MS, unsent_reason=UnsentReason.PACING))
    assert (names.TCP_UNSENT_EXCHANGES, names.TCP_UNSENT_TIME) == (exchanged.metric, time.metric)
    assert ([4], [0.004]) == (exchanged.values.tolist(), time.values.tolist())
    said = {str(name): values.tolist() for name, values in time.labels.items()}
    assert {
        "latencyprobe.direction": ["request"],
        "latencyprobe.reason": ["pacing"],
        "latencyprobe.bound": ["exact"],
    } == said


@pytest.mark.parametrize("code", [6, 255])
def test_a_code_of_another_version_is_another_reason(code):
    (record,) = evidence(unsent_reason=code, held_bound=9).rec
    assert [("server other at least", 0, 0)] == EXPLAINS.describe(record, 0)
