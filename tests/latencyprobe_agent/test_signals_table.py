"""The table of signals: what each row says fits together."""

import numpy as np
import pytest

from latencyprobe.spec import EvidenceSpec, signal_of
from latencyprobe_agent.signals.join_keys import RECENT_HALF
from latencyprobe_agent.signals.table import EVIDENCE, EvidenceSignal
from latencyprobe_agent.vocabulary.records import EvidenceFlags

of_evidence = pytest.mark.parametrize("signal", EVIDENCE, ids=lambda signal: signal.name)


@of_evidence
def test_records_are_decoded_to_keys_that_find_halves(signal: EvidenceSignal):
    evidence = signal.columns(np.zeros(3, signal.record))

    assert signal.key.columns == evidence.key.dtype
    assert "at_ns" in evidence.key.dtype.names
    assert [-1] * 3 == signal.key.find(np.zeros(5, RECENT_HALF), evidence.key).tolist()
    assert 3 == len(evidence.joins)


@of_evidence
def test_no_record_is_a_batch_too(signal: EvidenceSignal):
    nothing = signal.columns(np.zeros(0, signal.record))

    assert 0 == len(nothing) == len(signal.key.find(np.zeros(5, RECENT_HALF), nothing.key))
    assert not any(len(sample.rows) for sample in signal.explains.samples(nothing))


def test_each_switch_of_the_spec_and_of_the_kernel_has_a_signal():
    switches = [switch for signal in EVIDENCE for switch in signal.asked_by]

    assert sorted(EvidenceSpec.__struct_fields__) == sorted(switches)
    assert {signal.switch for signal in EVIDENCE} == {signal_of(switch) for switch in switches}
    assert {flag.name.lower() for flag in EvidenceFlags} == set(switches)
