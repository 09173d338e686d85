"""The signals of evidence as the plan switches it."""

import errno

import numpy as np
import pytest
from numpy.typing import NDArray

from latencyprobe.errors import Unsupported
from latencyprobe.plan import SpanPolicy, TargetPod
from latencyprobe_agent.guard import Guard
from latencyprobe_agent.identity.resources import FakeResources
from latencyprobe_agent.kernel.loader import OUT_OF_MEMORY
from latencyprobe_agent.kernel.programs import FakePrograms
from latencyprobe_agent.loop.background import FakeBackground
from latencyprobe_agent.loop.evidence import EvidenceSignals
from latencyprobe_agent.measure.halves import halves
from latencyprobe_agent.measure.rules import Rules, TargetSet, compile_rules
from latencyprobe_agent.signals.table import HANDSHAKES, RETRANSMITS, EvidenceSignal
from latencyprobe_agent.vocabulary.records import (
    COUNTS_KEY,
    EVIDENCE_COUNTS,
    RETRANSMIT,
    EvidenceFlags,
    RetransmitKind,
    Role,
)
from tests.support.exchanges import exchanges
from tests.support.plans import plan_of, replicas_of, target

ANY = {("", 1, 0, 0): 1}
MINUTES_NS = 10**12


def rules(evidence: EvidenceFlags) -> Rules:
    target_set = TargetSet(("shop/p/cart",), (), 0, SpanPolicy(1, 1.0, 1), "shop/p", evidence)
    return Rules(rules=ANY, sets={1: target_set})


def attach(signal: EvidenceSignal) -> FakePrograms:
    """A signal whose ring has one record that explains nothing, after it has lost three."""
    assert signal is RETRANSMITS
    record = np.zeros(1, RETRANSMIT)
    record["kind"], record["flow"]["boot_ns"] = RetransmitKind.SEGMENT, MINUTES_NS
    attached = FakePrograms(record)
    attached.lost_records = {"ring_full": 3, "storage": 0}
    for owner in (7, 8):
        gained = attached.gained[np.array((owner, 1, Role.SERVER), COUNTS_KEY).tobytes()] = np.zeros(1, EVIDENCE_COUNTS)
        gained["segs_sent"] = 5
    return attached


def test_what_nobody_asks_for_any_more_is_detached_where_replicas_run():
    """Rules of replicas name no target set."""
    replicas, pods = replicas_of("a", [("10.0.0.1", 80), ("10.0.0.2", 80)]), (TargetPod("a", (80,)),)
    asking = compile_rules(plan_of(target(evidence=("retransmits",), pods=pods, replicas=replicas)), {"a": [1]})
    after = compile_rules(plan_of(target(pods=pods, replicas=replicas)), {"a": [1]}, asking)
    kernel = []
    signals = EvidenceSignals(lambda signal: kernel.append(attach(signal)) or kernel[-1], FakeBackground())

    signals.follow(asking, 0.0)
    signals.follow(after, 0.0)
    assert [True] == [one.closed for one in kernel]


def test_where_the_last_pod_has_gone_what_is_attached_waits_for_the_next():
    """As those of a CronJob come and go: the first connections of each want explaining."""
    kernel = []
    signals = EvidenceSignals(lambda signal: kernel.append(attach(signal)) or kernel[-1], FakeBackground())
    asking = rules(EvidenceFlags.RETRANSMITS)
    nobody = Rules(sets=asking.sets)

    for one in (nobody, asking, nobody, asking):
        signals.follow(one, 0.0)
    assert [False] == [one.closed for one in kernel]
    signals.follow(nobody, 0.0)
    signals.follow(rules(EvidenceFlags(0)), 0.0)
    assert [True] == [one.closed for one in kernel]


def test_counters_go_on_when_a_signal_is_switched_off_and_on_again():
    signals = EvidenceSignals(attach, FakeBackground())
    seen = []
    for evidence in (EvidenceFlags.RETRANSMITS, EvidenceFlags(0), EvidenceFlags.RETRANSMITS):
        signals.follow(rules(evidence), 0.0)
        list(signals.drain(MINUTES_NS, FakeResources(), Guard()))
        counts = signals.lost["retransmits"], signals.outcomes["retransmits"]
        seen.append((counts[0]["ring_full"], counts[1]["no_exchange"]))

    signals.give_up()

    assert [(3, 0), (3, 1), (6, 1)] == seen, "what waits for its exchange when its signal ends finds none"
    assert 2 == signals.outcomes["retransmits"]["no_exchange"]


def test_what_the_kernel_counted_comes_once_also_of_a_signal_that_was_switched_off():
    signals = EvidenceSignals(attach, FakeBackground())
    seen = []
    for evidence in (EvidenceFlags.RETRANSMITS, EvidenceFlags(0), EvidenceFlags.RETRANSMITS, EvidenceFlags.RETRANSMITS):
        signals.follow(rules(evidence), 0.0)
        if evidence:
            seen.append([int(one.values["segs_sent"].sum()) for one in signals.counted(FakeResources(), 0.0)])

    assert [[10], [10], []] == seen, "it starts from 0 when it is attached again"
    signals.follow(rules(EvidenceFlags(0)), 0.0)
    signals.follow(rules(EvidenceFlags.RETRANSMITS), 0.0)
    signals.follow(rules(EvidenceFlags(0)), 0.0)
    assert [10] == [int(one.values["segs_sent"].sum()) for one in signals.counted(FakeResources(), 0.0)]


def test_owners_that_have_ended_leave_the_kernels_table():
    kernel = []
    signals = EvidenceSignals(lambda signal: kernel.append(attach(signal)) or kernel[-1], FakeBackground())
    signals.follow(rules(EvidenceFlags.RETRANSMITS), 0.0)
    resources = FakeResources()
    resources.gone = {7}
    for minute in (1, 2, 3):
        signals.counted(resources, 60.0 * minute)
    assert [8] == kernel[0].evidence_counts()[0]["owner"].tolist()


def test_what_memory_was_missing_for_is_tried_again_each_minute_and_what_the_kernel_lacks_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    tried, free = [], False

    def refuse(signal: EvidenceSignal) -> FakePrograms:
        tried.append(signal)
        if signal is HANDSHAKES:
            raise Unsupported("KernelUnsupported", "no tracepoint x")
        if free:
            return attach(signal)
        raise Unsupported("OutOfMemory", "no memory for maps")

    signals, asking = (
        EvidenceSignals(refuse, FakeBackground()),
        rules(EvidenceFlags.RETRANSMITS | EvidenceFlags.HANDSHAKES),
    )
    for now_s in (100.0, 101.0, 159.0, 160.0, 161.0):
        signals.follow(asking, now_s)
    assert [RETRANSMITS, HANDSHAKES, RETRANSMITS] == tried
    assert {"retransmits": "no memory for maps", "handshakes": "no tracepoint x"} == signals.refused
    free = True
    signals.follow(asking, 220.0)
    signals.follow(asking, 1000.0)
    assert [RETRANSMITS] == tried[3:]
    assert ["handshakes"] == list(signals.refused)
    assert 3 == len(caplog.records), "each is said once, and that it came"


def test_a_signal_for_which_nothing_could_be_opened_is_told_and_tried_again() -> None:
    failures = [OSError(errno.EMFILE, "Too many open files")]

    def load(signal: EvidenceSignal) -> FakePrograms:
        if failures:
            raise failures.pop()
        return attach(signal)

    signals = EvidenceSignals(load, FakeBackground())
    signals.follow(rules(EvidenceFlags.RETRANSMITS), 100.0)
    assert {"retransmits": "[Errno 24] Too many open files"} == signals.refused
    signals.follow(rules(EvidenceFlags.RETRANSMITS), 161.0)
    assert {} == signals.refused


def test_a_signal_that_raises_takes_no_other_along_and_what_it_had_drained_is_told():
    def attach_both(signal: EvidenceSignal) -> FakePrograms:
        """Records of the second signal are of another kind."""
        return FakePrograms(np.zeros(2, RETRANSMIT)) if signal is HANDSHAKES else attach(signal)

    signals, guard = EvidenceSignals(attach_both, FakeBackground()), Guard()
    signals.follow(rules(EvidenceFlags.RETRANSMITS | EvidenceFlags.HANDSHAKES), 0.0)
    found = [batch.name for batch in signals.drain(MINUTES_NS, FakeResources(), guard)]
    assert ["retransmits"] == found
    assert {"evidence": 1} == guard.failures
    assert 2 == signals.lost["handshakes"]["unmeasured"]


class Nesting(FakeResources):
    """All owners are of container 5."""

    def whose(self, owners: NDArray[np.uint64]) -> NDArray[np.uint64]:
        return np.full_like(owners, 5)


def test_evidence_of_what_a_container_nests_is_the_container_s():
    signals = EvidenceSignals(attach, FakeBackground())
    signals.follow(rules(EvidenceFlags.RETRANSMITS), 0.0)
    (batch,) = signals.drain(MINUTES_NS, Nesting(), Guard())
    (gained,) = signals.counted(Nesting(), 0.0)
    assert [5] == batch.records.rec["flow"]["cgroup_id"].tolist()
    assert [5, 5] == gained.keys["owner"].tolist()


def test_a_signal_explains_what_ended_while_its_programs_were_loaded() -> None:
    times = {"start_ns": MINUTES_NS - 10**7, "stages": (0, 2 * 10**7, 0, 0)}
    sent = {"request_seq": 1000, "request_bytes": 100, "sock_cookie": 7}
    record = np.zeros(1, RETRANSMIT)
    record["kind"], record["flow"]["boot_ns"], record["flow"]["sock_cookie"] = RetransmitKind.SEGMENT, MINUTES_NS, 7
    record["seq"], record["end_seq"] = 1000, 1100
    background = FakeBackground(waits=True)
    signals = EvidenceSignals(lambda _: FakePrograms(record), background)  # type: ignore[arg-type, return-value]
    asking = rules(EvidenceFlags.RETRANSMITS)
    signals.follow(asking, 0.0)
    signals.keep(halves(exchanges(1, Role.CLIENT, **times, **sent)))
    background.go()
    signals.follow(asking, 1.0)
    (batch,) = signals.drain(MINUTES_NS + 2 * 10**7, FakeResources(), Guard())
    assert batch.joined is not None
    assert [1000] == batch.joined.half["seq"].tolist()


def test_what_is_being_loaded_is_told_until_it_is_there_or_was_refused() -> None:
    def load(_: EvidenceSignal) -> FakePrograms:
        if refusals:
            raise refusals.pop()
        return FakePrograms(np.zeros(0, RETRANSMIT))

    refusals, background = [Unsupported(OUT_OF_MEMORY, "there is no memory")], FakeBackground(waits=True)
    signals = EvidenceSignals(load, background)  # type: ignore[arg-type]
    asking = rules(EvidenceFlags.RETRANSMITS)
    told = []
    for now_s in (0.0, 61.0):
        signals.follow(asking, now_s)
        told.append((signals.loading, [*signals.refused]))
        background.go()
        signals.follow(asking, now_s + 1)
        told.append((signals.loading, [*signals.refused]))
    assert [(("retransmits",), []), ((), ["retransmits"]), ((), ["retransmits"]), ((), [])] == told, (
        "what is tried again stays refused until it is there"
    )


def test_what_is_loaded_when_nobody_asks_any_more_is_closed() -> None:
    kernel, background = [], FakeBackground(waits=True)
    signals = EvidenceSignals(lambda signal: kernel.append(attach(signal)) or kernel[-1], background)
    asking, nothing = rules(EvidenceFlags.RETRANSMITS), rules(EvidenceFlags(0))
    signals.follow(asking, 0.0)
    signals.follow(nothing, 1.0)
    background.go()
    signals.follow(nothing, 2.0)
    assert ([True], {}) == ([one.closed for one in kernel], signals.variants)

    signals.follow(asking, 3.0)
    background.go()
    with signals:
        pass
    assert [True, True] == [one.closed for one in kernel], "also what nobody has looked at yet"
