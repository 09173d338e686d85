"""directory/attempts.py: a directory that is away is told once, a defect is counted and told, and both are outlived."""

import logging

import pytest

from latencyprobe.errors import DirectoryError
from latencyprobe_agent.directory.attempts import Attempts
from latencyprobe_agent.guard import Guard


def away() -> None:
    raise DirectoryError("503: busy", retry_after_s=7.0)


def defect() -> None:
    raise ValueError("tuple.index(x): x not in tuple")


def test_a_directory_that_is_away_is_told_once_each_time_and_counts_as_no_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    guard = Guard()
    attempts = Attempts("uplink", "counts wait", guard)
    assert attempts.run(away) is None
    assert attempts.run(away) is None
    assert (attempts.problem, attempts.retry_after_s) == ("503: busy", 7.0)
    assert attempts.run(lambda: 3) == 3
    assert (attempts.problem, attempts.retry_after_s) == ("", 0.0)
    assert attempts.run(away) is None
    assert [record.message for record in caplog.records] == ["503: busy; counts wait"] * 2
    assert (guard.failures, guard.problems) == ({}, {})


def test_what_another_thread_tells_is_not_told_again(caplog: pytest.LogCaptureFixture) -> None:
    attempts = Attempts("status_post")
    assert attempts.run(away) is None
    assert not caplog.records


def test_a_defect_is_counted_and_told(caplog: pytest.LogCaptureFixture) -> None:
    guard = Guard()
    attempts = Attempts("plan_stream", "the plan holds", guard)
    assert attempts.run(defect) is None
    assert guard.problems == {"plan_stream": "ValueError: tuple.index(x): x not in tuple"}
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert guard.failures == {"plan_stream": 1}


def test_what_works_before_its_end_is_no_problem_any_more() -> None:
    attempts = Attempts("plan_stream")
    attempts.run(away)

    def work() -> None:
        attempts.worked()
        assert attempts.problem == ""

    attempts.run(work)
    assert attempts.problem == ""
