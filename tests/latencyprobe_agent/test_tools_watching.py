"""tools/watching.py: what a tool of a tracker takes of whom."""

import pytest

from latencyprobe_agent.tools import watching
from latencyprobe_agent.tools.watching import STACKS, wanted_stacks
from latencyprobe_agent.vocabulary.records import StackOptionFlags


def test_user_stacks_are_not_taken_where_the_kernels_numbers_are_other_processes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(watching, "has_the_kernels_numbers", lambda: False)
    assert wanted_stacks("user") == StackOptionFlags.KERNEL
    assert "no user stacks: in a PID namespace of its own" in capsys.readouterr().err
    assert wanted_stacks("kernel") == StackOptionFlags.KERNEL
    assert not capsys.readouterr().err


def test_stacks_are_those_of_the_choice_on_the_host(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(watching, "has_the_kernels_numbers", lambda: True)
    assert {choice: wanted_stacks(choice) for choice in STACKS} == STACKS
    assert not capsys.readouterr().err
