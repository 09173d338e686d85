"""store/packing.py: blobs that are small and give back what was put in."""

from collections import Counter
from functools import reduce

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latencyprobe import pressure
from latencyprobe.bounds import MAX_SUM, MAX_SUM_NS
from latencyprobe.causes import CAUSES
from latencyprobe.sli import PEERS, SLOWEST, EvidenceCount, EvidenceSummary, PressureTime, SlowExchange
from latencyprobe.store.packing import (
    Detail,
    Exemplars,
    Unreadable,
    add_details,
    add_exemplars,
    pack_detail,
    pack_exemplars,
    summed,
    unpack_exemplars,
)

counts = st.integers(1, 2**40)
stages = st.dictionaries(st.sampled_from(["receive", "process", "server_send", "a stage of tomorrow"]), counts)
signals = st.dictionaries(
    st.sampled_from(["retransmits", "handshakes"]), st.builds(EvidenceCount, counts, counts, counts, counts)
)
reasons = st.dictionaries(st.sampled_from(["push", "oneway", "own", "other"]), counts)
buckets = st.dictionaries(st.integers(-672, 319), counts, max_size=40)
held = st.dictionaries(
    st.sampled_from([*pressure.BY_NAME]), st.builds(PressureTime, counts, counts, counts, counts), max_size=4
)
causes = st.dictionaries(st.sampled_from(["fdatasync", "on CPU", "throttled", "other"]), counts)
details = st.builds(Detail, buckets, stages, stages, signals, reasons, pressure=held, cause_ns=causes)


def unpack_detail(blob: bytes) -> Detail:
    return summed([blob])


@given(details)
def test_detail_comes_back_as_it_was(detail: Detail) -> None:
    assert detail == unpack_detail(pack_detail(detail))


@given(details, details)
def test_added_details_are_the_sum(one: Detail, other: Detail) -> None:
    added = unpack_detail(add_details(pack_detail(one), pack_detail(other)))
    assert Counter(one.histogram) + Counter(other.histogram) == Counter(added.histogram)
    assert Counter(one.stage_ns) + Counter(other.stage_ns) == Counter(added.stage_ns)
    assert Counter(one.dominant) + Counter(other.dominant) == Counter(added.dominant)
    assert Counter(one.exclusions) + Counter(other.exclusions) == Counter(added.exclusions)
    bad = [Counter({name: count.bad for name, count in d.evidence.items()}) for d in (one, other, added)]
    assert bad[0] + bad[1] == bad[2]
    of_us = [Counter({kind: time.of_us for kind, time in d.pressure.items()}) for d in (one, other, added)]
    assert of_us[0] + of_us[1] == of_us[2]
    assert Counter(one.cause_ns) + Counter(other.cause_ns) == Counter(added.cause_ns)


def test_a_correction_that_comes_later_is_taken_off() -> None:
    counted, corrected = (
        Detail(stage_ns={"wait": 50}),
        Detail(stage_ns={"wait": -50, "network": 50}, dominant={"wait": -1}),
    )
    late = unpack_detail(pack_detail(corrected))
    assert corrected == late
    assert {"network": 50} == unpack_detail(add_details(pack_detail(counted), pack_detail(corrected))).stage_ns


@given(st.binary(max_size=40), details)
def test_what_cannot_be_read_says_so_and_stays(blob: bytes, detail: Detail) -> None:
    for unpack, add, other in (
        (unpack_detail, add_details, pack_detail(detail)),
        (unpack_exemplars, add_exemplars, pack_exemplars(Exemplars())),
    ):
        try:
            unpack(blob)
        except Unreadable:
            assert blob == add(blob, other)


def test_counts_that_no_honest_one_reaches_are_added_to_no_more_and_ns_are() -> None:
    half, spent_ns = MAX_SUM // 2 + 1, {"process": 3 << 62, "wait": -(3 << 62)}
    evidence = {"tcprt": EvidenceCount(half, half, 3 << 62)}
    blob = pack_detail(Detail({3: half}, spent_ns, {"process": half}, evidence, {"push": half}))
    assert spent_ns == unpack_detail(blob).stage_ns
    beyond = add_details(blob, blob)
    with pytest.raises(Unreadable, match=f"{2 * half} events are more than can be"):
        unpack_detail(beyond)
    assert beyond == add_details(beyond, blob)


def test_nothing_takes_no_room() -> None:
    assert b"" == pack_detail(Detail()) == pack_detail(Detail({5: 0})) == pack_detail(Detail(exclusions={"push": 0}))


def test_reason_takes_a_code_and_its_count() -> None:
    assert 9 == len(pack_detail(Detail(exclusions={"push": 9, "teardown": 9})))


def test_blob_from_before_there_were_reasons_is_read_and_added_to() -> None:
    older = msgspec.msgpack.encode(([-200, 7], {0: (5, 1)}))
    assert Detail({-200: 7}, {"receive": 5}, {"receive": 1}) == unpack_detail(older)
    newer = pack_detail(Detail(exclusions={"push": 2}))
    assert {"push": 2} == unpack_detail(add_details(older, newer)).exclusions


def test_pressure_of_an_idle_minute_takes_31_bytes_and_what_is_not_known_none() -> None:
    idle = dict.fromkeys(pressure.BY_NAME, PressureTime(0, 60_000_000))
    assert 31 == len(pack_detail(Detail(pressure=idle)))
    io = {"io": PressureTime(0, 9)}
    assert io == unpack_detail(pack_detail(Detail(pressure=io))).pressure


def test_time_of_all_containers_for_years_is_kept() -> None:
    ages = {"io": PressureTime(3 << 62, 3 << 62, 3 << 62, 3 << 62)}
    assert ages == unpack_detail(pack_detail(Detail(pressure=ages))).pressure


def test_causes_are_bounded_take_their_name_and_a_time_and_a_blob_from_before_there_were_any_has_none() -> None:
    older = pack_detail(Detail({-200: 7}))
    assert {} == unpack_detail(older).cause_ns
    many = [pack_detail(Detail(cause_ns={f"call{i}": 3 << 61})) for i in range(40)]
    total = unpack_detail(reduce(add_details, many, older)).cause_ns
    assert (CAUSES + 1, 40 * (3 << 61)) == (len(total), sum(total.values()))
    three = {"fdatasync": 10**10, "on CPU": 10**8, "throttled": 10**9}
    assert 54 == len(pack_detail(Detail(cause_ns=three)))


def test_reason_that_no_version_had_is_no_count_of_ours() -> None:
    with pytest.raises(Unreadable, match="exclusions: 99"):
        unpack_detail(msgspec.msgpack.encode(([], {}, {}, {99: 1})))


def test_bucket_takes_about_a_byte() -> None:
    assert len(pack_detail(Detail(dict.fromkeys(range(-300, -220), 9)))) < 90


def test_witnesses_from_before_servers_waited_for_others_are_read_and_added_to() -> None:
    older = msgspec.msgpack.encode(((), {"shop/cart": 3}))
    assert older == pack_exemplars(Exemplars((), {"shop/cart": 3}))
    found = unpack_exemplars(add_exemplars(older, pack_exemplars(Exemplars((), {}, {"shop/redis:6379": 1 << 62}))))
    assert Exemplars((), {"shop/cart": 3}, {"shop/redis:6379": 1 << 62}) == found
    twice = unpack_exemplars(add_exemplars(*[pack_exemplars(found)] * 2))
    assert {"shop/redis:6379": MAX_SUM_NS} == twice.waited_ns


def test_witnesses_are_bounded_and_sorted() -> None:
    evidence = (EvidenceSummary("retransmits", "rto", 1, 9),)
    slow = [SlowExchange(f"{i:032x}", i, i % 8, {"process": i}, "shop/cart", evidence=evidence) for i in range(40)]
    blobs = [pack_exemplars(Exemplars((exchange,), {f"p{i}": 1}, {f"w{i % 30}": i})) for i, exchange in enumerate(slow)]
    total = blobs[0]
    for blob in blobs[1:]:
        total = add_exemplars(total, blob)
    found = unpack_exemplars(total)
    assert (SLOWEST, PEERS, PEERS) == (len(found.slowest), len(found.peers), len(found.waited_ns))
    assert [7, 7, 7, 7, 7] == [exchange.duration_ns for exchange in found.slowest]
    assert slow[7] == found.slowest[0]
