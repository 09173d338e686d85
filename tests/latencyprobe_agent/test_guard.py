"""What one part raises is logged, counted and skipped; only the kernel's refusal passes."""

import logging

import pytest

from latencyprobe.errors import Unsupported
from latencyprobe_agent.guard import Guard


def fail() -> None:
    raise ValueError("tuple.index(x): x not in tuple")


def test_a_part_that_raises_is_counted_and_named_until_it_works_again(caplog: pytest.LogCaptureFixture) -> None:
    guard = Guard()
    assert guard.run("metrics", fail) is None
    assert guard.run("metrics", fail) is None
    assert guard.failures == {"metrics": 2}
    assert guard.problems == {"metrics": "ValueError: tuple.index(x): x not in tuple"}
    assert [record.levelno for record in caplog.records] == [logging.ERROR], "once, with its traceback"
    assert caplog.records[0].exc_info
    assert guard.run("metrics", lambda: 7) == 7
    assert guard.problems == {}
    assert guard.failures == {"metrics": 2}


def test_the_kernels_refusal_passes() -> None:
    def refuse() -> None:
        raise Unsupported("KernelUnsupported", "no BTF")

    guard = Guard()
    with pytest.raises(Unsupported):
        guard.run("plan", refuse)
    assert not guard.failures
