"""The kernel's bucket arithmetic, the agent's and OpenTelemetry's own must name the same bucket for every duration."""

import re
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.metrics._internal.exponential_histogram.mapping.logarithm_mapping import LogarithmMapping

from latencyprobe_agent.measure import histogram
from latencyprobe_agent.vocabulary.records import HISTOGRAM_BUCKETS, HISTOGRAM_MIN, HISTOGRAM_SCALE

HEADER = (Path(__file__).parents[2] / "bpf/histogram.h").read_text()
BASE = int(re.search(r"HISTOGRAM_OCTAVE_BASE \((-?\d+)\)", HEADER)[1])
BOUNDS = [int(text, 16) for text in re.findall(r"0x[0-9a-f]{16}", HEADER)]
DURATIONS = st.integers(1, 2**63 - 1)


def kernel_index(duration_ns: int) -> int:
    """The formula in the comment of histogram.h, word by word."""
    clz = 64 - duration_ns.bit_length()
    return 32 * (63 - clz) + sum(bound < duration_ns << clz for bound in BOUNDS) + BASE


@given(st.integers(2**20, 2**40))
def test_the_kernel_names_the_bucket_that_opentelemetry_names(duration_ns):
    # Beyond 2**40 ns a float of seconds no longer tells neighbouring ns apart at a bound.
    assert LogarithmMapping(HISTOGRAM_SCALE).map_to_index(duration_ns / 1e9) == kernel_index(duration_ns)


def test_whole_powers_of_two_seconds_are_the_inclusive_upper_bound_of_their_bucket():
    for exponent in range(10):
        assert 32 * exponent - 1 == kernel_index(2**exponent * 10**9)
        assert 32 * exponent == kernel_index(2**exponent * 10**9 + 1)


@given(st.lists(DURATIONS, min_size=1))
def test_the_agent_places_durations_as_the_kernel_does(durations):
    expected = [min(max(kernel_index(d) - HISTOGRAM_MIN, 0), HISTOGRAM_BUCKETS - 1) for d in durations]

    assert expected == histogram.positions(np.array(durations)).tolist()


def test_durations_at_every_bound_fall_on_the_right_side():
    for index in range(HISTOGRAM_MIN + 1, HISTOGRAM_MIN + HISTOGRAM_BUCKETS):
        bound = histogram.bound_ns(index)
        below, above = histogram.positions(np.array([bound, bound + 1]))
        assert (index - 1, index) == (below + HISTOGRAM_MIN, above + HISTOGRAM_MIN)


def test_a_sparse_histogram_keeps_the_filled_buckets_under_their_opentelemetry_index():
    counts = np.zeros(HISTOGRAM_BUCKETS, np.uint32)
    counts[histogram.positions(np.array([10**9, 10**9]))] += 2

    assert {-1: 2} == histogram.sparse(counts)
