"""How much memory there is."""

from pathlib import Path

import pytest

from latencyprobe_operator.cluster.memory import limit, room


@pytest.mark.parametrize(
    ("file", "said", "expected"),
    [
        ("memory.max", "536870912\n", 512 << 20),
        ("memory.max", "max\n", None),
        ("memory/memory.limit_in_bytes", "1073741824\n", 1 << 30),
        ("memory/memory.limit_in_bytes", "9223372036854771712\n", None),
        ("other", "", None),
    ],
)
def test_the_containers_limit_is_read_in_both_versions(tmp_path: Path, file: str, said: str, expected: int) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(said)
    assert limit(tmp_path) == expected


def test_objects_have_a_quarter_of_it() -> None:
    assert (room(512 << 20), room(None)) == (128 << 20, 1 << 30)
