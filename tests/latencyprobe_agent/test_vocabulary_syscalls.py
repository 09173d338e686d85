"""latencyprobe_agent.vocabulary.syscalls: names of system calls, numbers by name."""

import platform

import pytest

from latencyprobe_agent.vocabulary import syscalls

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="arm64 execution")


@pytest.mark.parametrize(
    ("nr", "name"),
    [(0, "read"), (74, "fsync"), (202, "futex"), (230, "clock_nanosleep"), (435, "clone3"), (462, "mseal")],
)
def test_a_number_has_the_kernels_name_and_back(nr: int, name: str) -> None:
    assert (name, nr) == (syscalls.name(nr), syscalls.number(name))


def test_what_has_no_name_shows_its_number() -> None:
    assert syscalls.name(4000) == "syscall_4000"
    assert syscalls.number("no_such_call") is None
