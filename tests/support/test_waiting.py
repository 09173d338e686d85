"""waiting.py: who waits in vain is told for what, and how it stood."""

import asyncio

import pytest

from tests.support.waiting import until, wait_until


def test_the_first_truthy_value_is_returned() -> None:
    values = iter([0, [], "there", "never asked"])
    assert wait_until(lambda: next(values)) == "there"


def test_what_was_waited_for_and_last_seen_are_told() -> None:
    with pytest.raises(AssertionError, match=r"^not within 0 s: three rows; last seen: \[\]$"):
        wait_until(list, "three rows", 0)
    with pytest.raises(AssertionError, match=r"three rows; last seen: 2 of 3"):
        wait_until(lambda: False, "three rows", 0, seen=lambda: "2 of 3")


def test_what_is_not_named_is_told_by_its_source() -> None:
    rows: list[int] = []
    with pytest.raises(AssertionError, match=r"wait_until\(lambda: len\(rows\) == 3"):
        wait_until(lambda: len(rows) == 3, timeout_s=0)


def test_who_is_not_ready_may_raise_and_other_errors_pass() -> None:
    errors = iter([ConnectionError("refused"), ValueError("no number")])

    def answer() -> None:
        raise next(errors)

    with pytest.raises(ValueError, match="no number"):
        wait_until(answer, unready=ConnectionError)


def test_why_somebody_was_not_ready_is_what_was_last_seen() -> None:
    def refuse() -> None:
        raise ConnectionError("refused")

    with pytest.raises(AssertionError, match="it answers; last seen: refused"):
        wait_until(refuse, "it answers", 0, unready=ConnectionError)


def test_in_an_event_loop_others_go_on_and_the_condition_may_be_a_coroutine() -> None:
    async def scene() -> None:
        came: list[int] = []

        async def come(number: int) -> None:
            came.append(number)

        async def two() -> bool:
            return len(came) == 2

        async with asyncio.TaskGroup() as tasks:
            for i in range(2):
                tasks.create_task(come(i))
            assert await until(two)
        with pytest.raises(AssertionError, match="not within 0 s: a third; last seen: False"):
            await until(lambda: len(came) == 3, "a third", 0)

    asyncio.run(scene())
