"""What one part raises is logged, counted and skipped; only the kernel's refusal passes."""

import logging

import pytest

from latencyprobe.errors import Unsupported
from latencyprobe_agent.guard import Guard


def fail() -> None:
    raise ValueError("tuple.index(x): x not in tuple")


def test_a_part_that_raises_is_counted_and_named_until_it_has_worked_for_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One that fails at records alone works at each turn without any: it is told all the same, and logged once."""
    now_s = 1000.0
    guard = Guard(lambda: now_s)
    for _ in range(3):
        assert guard.run("metrics", fail) is None
        assert guard.run("metrics", lambda: 7) == 7
        assert guard.problems == {"metrics": "ValueError: tuple.index(x): x not in tuple"}
        now_s += 20
    assert guard.failures == {"metrics": 3}
    assert [record.levelno for record in caplog.records] == [logging.ERROR], "once, with its traceback"
    assert caplog.records[0].exc_info
    now_s += 60
    assert guard.problems == {}
    assert guard.run("metrics", fail) is None
    assert len(caplog.records) == 2
    assert guard.failures == {"metrics": 4}


def test_what_nobody_tries_again_is_told_to_the_end() -> None:
    now_s = 1000.0
    guard = Guard(lambda: now_s)
    assert guard.run("export", fail, once=True) is None
    now_s += 86_400
    assert list(guard.problems) == ["export"]


def test_the_kernels_refusal_passes() -> None:
    def refuse() -> None:
        raise Unsupported("KernelUnsupported", "no BTF")

    guard = Guard()
    with pytest.raises(Unsupported):
        guard.run("plan", refuse)
    assert not guard.failures
