"""The canary sings every 10 s, and says which hook it was not heard by, twice in a row."""

import logging
from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest

from latencyprobe_agent.guard import Guard
from latencyprobe_agent.kernel.programs import FakePrograms
from latencyprobe_agent.loop.canary import Canary, SilentHookError
from latencyprobe_agent.measure.canary import CANARY_SET
from latencyprobe_agent.measure.rules import NO_RULES
from latencyprobe_agent.vocabulary.records import EXCHANGE, ExchangeFlags

WHOLE = ExchangeFlags.FRESH | ExchangeFlags.CLOSED


class Kernel(FakePrograms):
    """Remembers of which ports it was to tell."""

    def __init__(self) -> None:
        super().__init__()
        self.variants = {"read": "tp_btf"}
        self.ports: list[int] = []
        self.apply(NO_RULES, own_cgroups=[7])

    def tell_of_canary(self, port: int) -> None:
        self.ports.append(port)


@pytest.fixture
def kernel() -> Kernel:
    return Kernel()


@pytest.fixture
def clock() -> SimpleNamespace:
    return SimpleNamespace(s=100.0)


@pytest.fixture
def canary(kernel: Kernel, clock: SimpleNamespace) -> Iterator[Canary]:
    canary = Canary(kernel, lambda: clock.s)  # type: ignore[arg-type]  # a fake
    yield canary
    canary.close()


def told(flags: ExchangeFlags = WHOLE, n: int = 2) -> np.ndarray:
    records = np.zeros(n, EXCHANGE)
    records["target_set"], records["flags"] = CANARY_SET, flags
    return records


def test_its_records_are_nobody_elses(canary: Canary) -> None:
    others = np.zeros(3, EXCHANGE)
    others["target_set"] = [1, 2, 3]
    batch = np.concatenate([others[:2], told(), others[2:]])
    assert canary.others(batch)["target_set"].tolist() == [1, 2, 3]
    assert canary.others(others) is others


def test_it_sings_at_once_and_every_ten_seconds_on_one_port(
    canary: Canary, kernel: Kernel, clock: SimpleNamespace
) -> None:
    canary.sing()
    for _ in range(3):
        canary.others(told())
        for _ in range(10):
            clock.s += 1
            canary.sing()
    assert len(kernel.ports) == 1


def test_that_it_is_heard_is_logged_once(
    canary: Canary, clock: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    canary.sing()
    for _ in range(3):
        canary.others(told())
        clock.s += 10
        canary.sing()
    assert caplog.messages == ["canary: the kernel tells of every event"]


def test_an_event_that_is_missing_once_is_no_news_and_twice_names_it_with_variant_and_remedy(
    canary: Canary, clock: SimpleNamespace
) -> None:
    canary.sing()
    for flags in (WHOLE, WHOLE | ExchangeFlags.READ_APPROX):
        canary.others(told(flags))
        clock.s += 10
        canary.sing()
    canary.others(told(WHOLE | ExchangeFlags.READ_APPROX))
    clock.s += 10
    with pytest.raises(SilentHookError, match=r"does not tell of read \(tp_btf\): delete this pod"):
        canary.sing()
    canary.others(told())
    clock.s += 10
    canary.sing()


def test_a_kernel_that_never_tells_is_named_after_the_first_one_already(canary: Canary, clock: SimpleNamespace) -> None:
    canary.sing()
    clock.s += 10
    with pytest.raises(SilentHookError, match=r"ready .*send_start"):
        canary.sing()


def test_a_full_ring_is_no_silent_hook(canary: Canary, kernel: Kernel, clock: SimpleNamespace) -> None:
    canary.sing()
    for _ in range(4):
        clock.s += 10
        kernel.lost_records["ring_full"] += 1
        canary.sing()
    for _ in range(2):
        canary.others(told())
        clock.s += 10
        canary.sing()


def test_the_remedy_is_within_what_a_status_says_of_a_part(
    canary: Canary, kernel: Kernel, clock: SimpleNamespace
) -> None:
    kernel.variants = dict.fromkeys(("send_start", "send_end"), "fentry_sendpage")
    kernel.variants |= {"ready": "fentry", "read": "fexit", "state": "tp_btf"}
    guard = Guard()
    for _ in range(2):
        guard.run("canary", canary.sing)
        clock.s += 10
    assert guard.problems["canary"].endswith("delete this pod; kernel.ftrace_enabled must be 1")


def test_it_is_silent_where_its_own_pod_is_a_target(canary: Canary, kernel: Kernel, clock: SimpleNamespace) -> None:
    kernel.tells_of_canary = False
    for _ in range(3):
        canary.sing()
        clock.s += 10
    assert kernel.ports == []
