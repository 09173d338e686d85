"""Names of processes, in a tree as /proc has it."""

import pytest

from latencyprobe_agent.identity.process_name import process_name


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        (b"redis-server\n", "redis-server"),
        (b"caf\xe9\n", "caf\ufffd"),
        (b"\x1b[2J\x1b]0;hi\x07\n", "\ufffd[2J\ufffd]0;hi\ufffd"),
        (b"two\nlines\n", "two\ufffdlines"),
        (b"\n", ""),
    ],
)
def test_a_name_is_text_and_steers_no_terminal(tmp_path, raw, name):
    (tmp_path / "12").mkdir()
    (tmp_path / "12" / "comm").write_bytes(raw)
    assert process_name(12, tmp_path) == name


def test_of_who_has_ended_no_name_is_known(tmp_path):
    assert process_name(99, tmp_path) == ""
