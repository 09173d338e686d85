"""Differences of readings: what one interval brought, never more than the interval, and never a 0 that nobody read."""

from hypothesis import given
from hypothesis import strategies as st

from latencyprobe_agent.identity.pressure import Quota, Reading
from latencyprobe_agent.measure.pressure import gained

SECOND_US = 1_000_000


def reading(at_us: int, *quotas: Quota, **some_us: int) -> Reading:
    return Reading(at_us, quotas, some_us, dict.fromkeys(some_us, 0))


def test_an_interval_is_the_difference_of_two_readings_and_the_total_of_the_first_and_the_last() -> None:
    first = reading(0, Quota(10, 0, 0), cpu=5, io=7)
    before = reading(SECOND_US, Quota(20, 5, 300_000, 100_000), cpu=100_005, io=7)
    now = reading(2 * SECOND_US, Quota(30, 9, 680_000, 100_000), cpu=400_005, io=9)
    stall = gained("/c", first, before, now)
    assert (stall.container, stall.elapsed_us) == ("/c", SECOND_US)
    assert stall.us == {"throttled": 380_000, "cpu": 300_000, "io": 2}
    assert stall.total.quotas == (Quota(20, 9, 680_000, 100_000),)
    assert stall.total.some_us == {"cpu": 400_000, "io": 2}


def test_time_of_many_cpus_is_at_most_the_periods_that_throttled() -> None:
    """Eight CPUs that stand still for 75 of 100 ms are 600 ms to the kernel."""
    before, now = reading(0, Quota(10, 3, 0, 100_000)), reading(SECOND_US, Quota(20, 4, 600_000, 100_000))
    assert gained("/c", before, before, now).us == {"throttled": 100_000}


def test_time_of_many_cpus_is_at_most_the_interval() -> None:
    before, now = reading(0, Quota(10, 0, 0)), reading(SECOND_US, Quota(20, 10, 6_000_000, 100_000))
    assert gained("/c", before, before, now).us == {"throttled": SECOND_US}


def test_of_two_quotas_the_one_that_held_up_longest_counts_and_their_times_are_not_added() -> None:
    before = reading(0, Quota(), Quota())
    now = reading(SECOND_US, Quota(10, 4, 200_000, 100_000), Quota(10, 6, 450_000, 100_000))
    assert gained("/c", before, before, now).us == {"throttled": 450_000}


def test_what_is_not_told_is_absent() -> None:
    before, now = reading(0, cpu=1, memory=1), reading(SECOND_US, cpu=1)
    stall = gained("/c", before, before, now)
    assert stall.us == {"cpu": 0}
    assert stall.total.some_us == {"cpu": 0}


quotas = st.builds(Quota, *[st.integers(0, 1 << 40)] * 3, st.sampled_from([0, 10_000, 100_000]))


@given(quotas, quotas, st.integers(0, 1 << 40), st.integers(0, 1 << 40))
def test_nothing_is_longer_than_its_interval_or_negative(one: Quota, other: Quota, us: int, more_us: int) -> None:
    before, now = reading(0, one, io=us), reading(SECOND_US, other, io=more_us)
    assert all(0 <= some <= SECOND_US for some in gained("/c", before, before, now).us.values())
