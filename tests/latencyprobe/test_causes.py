"""causes.py: names of what time went to, and which of them stay when there are too many."""

import pytest

from latencyprobe import causes


@pytest.mark.parametrize("name", [*causes.ALL, "fdatasync", "_sysctl", "epoll_pwait2", "syscall_470"])
def test_what_an_agent_tells_is_a_cause(name: str) -> None:
    assert causes.is_cause(name)


@pytest.mark.parametrize("name", [causes.UNKNOWN, "", "Fsync", "f\x1b[31m", "of another version", "f" * 33, "fsync\n"])
def test_what_is_no_name_of_a_call_and_unknown_here_is_none(name: str) -> None:
    assert not causes.is_cause(name)


def test_the_rest_is_other_whatever_was_added_up_first() -> None:
    ns = {f"call{i:02}": i for i in range(20)} | {causes.OTHER: 100}
    found = causes.folded(ns)
    assert ["call19", "call18"] == list(found)[:2]
    assert (causes.CAUSES + 1, 100 + 1 + 2 + 3) == (len(found), found[causes.OTHER])
    assert sum(ns.values()) == sum(found.values())
    assert found == causes.folded(found)


def test_nothing_is_no_other() -> None:
    assert {} == causes.folded({causes.OTHER: 0})
    assert {"fsync": 1} == causes.folded({"fsync": 1})


def test_a_cause_is_worded_also_with_whose_it_was_and_a_call_keeps_its_name() -> None:
    assert "throttled by the CPU quota (another thread)" == causes.told("throttled (another thread)")
    assert "fsync (another thread)" == causes.told("fsync (another thread)")
    assert "page faults" == causes.told(causes.PAGE_FAULT)
