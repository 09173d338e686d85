"""Boot time to Unix time, with clocks of our own."""

import itertools
import time

from latencyprobe_agent.kernel.clock import Clock, Sleeps, boot_offset_ns

OFFSET = 1_700_000_000_000_000_000


class FakeClocks:
    """Boot time moves by `cost_ns` at each reading; Unix time is `offset_ns` ahead of it."""

    def __init__(self) -> None:
        self.boot, self.offset_ns, self.cost_ns = 10**12, OFFSET, 100

    def boot_ns(self) -> int:
        self.boot += self.cost_ns
        return self.boot

    def unix_ns(self) -> int:
        return self.boot + self.offset_ns


def test_the_offset_is_that_of_the_tightest_reading():
    fake = FakeClocks()
    costs = iter([10**6, 10**6, 100, 100, 10**6] + [10**6] * 20)

    def slow_now_and_then() -> int:
        fake.cost_ns = next(costs)
        return fake.boot_ns()

    clock = Clock(slow_now_and_then, fake.unix_ns)

    assert abs(clock.to_unix(10**12) - (10**12 + OFFSET)) <= 100


def test_the_offset_follows_a_drifting_clock_without_a_step():
    fake = FakeClocks()
    clock = Clock(fake.boot_ns, fake.unix_ns)
    fake.boot += 10**9
    fake.offset_ns += 400_000  # 400 ppm of a second

    assert 0 == clock.resample()
    assert abs(clock.offset_ns - OFFSET - 400_000) < 1000


def test_a_step_is_told_with_its_size():
    fake = FakeClocks()
    clock = Clock(fake.boot_ns, fake.unix_ns)
    fake.boot += 10**9
    fake.offset_ns -= 3_600 * 10**9

    assert abs(clock.resample() + 3_600 * 10**9) < 1000
    assert 0 == clock.resample()


def test_the_real_clocks_agree_with_time():
    clock, second = Clock(), 10**9

    assert time.time_ns() - second < clock.now().unix_ns < time.time_ns() + second


def test_a_sleep_is_told_with_its_length_and_no_pause_is_one():
    fake = FakeClocks()
    slept_ns = 0
    sleeps = Sleeps(fake.boot_ns, lambda: fake.boot - slept_ns)
    fake.boot += 10**9  # awake
    sleeps.watch()
    assert not sleeps.known

    before = fake.boot
    fake.boot += 5 * 10**9
    slept_ns = 4 * 10**9
    sleeps.watch()
    sleeps.watch()

    (sleep,) = sleeps.known
    assert sleep.after_ns <= before < sleep.before_ns
    assert abs(sleep.length_ns - 4 * 10**9) < 1000


def test_the_real_clocks_find_no_sleep_in_a_moment():
    sleeps = Sleeps()
    for _ in range(1000):
        sleeps.watch()
    assert not sleeps.known


def offset_of_readings(asleep_ns: int) -> int:
    """Of two clocks of which each reading takes its time."""
    now, steps = 10**15, itertools.cycle((70, 40, 55, 90, 35))

    def read(ahead_ns: int) -> int:
        nonlocal now
        now += next(steps)
        return now + ahead_ns

    return boot_offset_ns(lambda: read(asleep_ns), lambda: read(0))


def test_boot_and_monotonic_time_of_a_host_that_never_slept_are_exactly_the_same():
    assert 0 == offset_of_readings(0)


def test_how_long_a_host_has_slept_is_found_within_the_time_that_a_reading_takes():
    assert abs(offset_of_readings(3_600_000_000_000) - 3_600_000_000_000) < 100
