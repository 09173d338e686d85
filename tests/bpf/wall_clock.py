"""Steps of the wall clock under load. Only tests/kernels runs it: in a guest of its own a clock may be set."""

import threading
import time

import pytest
import workload
from join import CLIENT, SERVER, match, outside_calls

from latencyprobe_agent.kernel.clock import Clock

pytestmark = pytest.mark.root

PORT = workload.free_port()
STEPS_S = (3600, -3600, 5, -5)


def test_steps_of_the_wall_clock_touch_no_stamp(session, tmp_path):
    clock, told_s, ended = Clock(), [], threading.Event()

    def set_clock() -> None:
        while not ended.wait(0.1):
            seconds = STEPS_S[len(told_s) % len(STEPS_S)]
            time.clock_settime_ns(time.CLOCK_REALTIME, time.time_ns() + seconds * 10**9)
            told_s.append(clock.resample() / 1e9)

    session.measure(PORT)
    setter = threading.Thread(target=set_clock)
    setter.start()
    try:
        truth = workload.run_both(
            tmp_path / "log", address=f"127.0.0.1:{PORT}", total=200, seed=17, threads=1, rpcs=20, rate=100
        )
    finally:
        ended.set()
        setter.join()
    records = session.records(2 * len(truth))
    matched = match(truth, records)
    missed = session.programs.lost()["recursion"]
    print(f"{len(told_s)} steps, {matched.describe()}")
    assert [len(matched.missing(role)) for role in (CLIENT, SERVER)] == [0, 0]
    assert max(outside_calls(truth, records, matched).values()) <= missed, "by the boot clock of the generator"
    halves, pairs = session.pairs(records)
    assert len(pairs) == len(truth)
    assert halves.duration_ns.max() < 5e9
    assert len(told_s) >= len(STEPS_S)
    expected_s = [STEPS_S[i % len(STEPS_S)] for i in range(len(told_s))]
    assert all(abs(told - expected) < 1 for told, expected in zip(told_s, expected_s, strict=True))
