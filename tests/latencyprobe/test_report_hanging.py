"""report/hanging.py: sentences on a terminal."""

import io

import pytest
from rich.console import Console

from latencyprobe.report import hanging

SAID = "burned by network 70.4 %, server_process 29.5 % of them [bold]"


def lines(width: int, said: str = SAID) -> list[str]:
    file = io.StringIO()
    hanging.render(said, Console(file=file, width=80), 4, width)
    return file.getvalue().splitlines()


@pytest.mark.parametrize("width", range(24, 80))
def test_no_figure_is_parted_from_its_unit_and_nothing_is_lost(width: int) -> None:
    found = lines(width)
    assert max(map(len, found)) <= width
    assert " ".join(line.strip() for line in found) == SAID
    assert [] == [line for line in found if line.strip().startswith("%")]


def test_what_goes_on_is_further_right() -> None:
    assert [len(line) - len(line.lstrip()) for line in lines(40)] == [4, 6, 6]


def test_a_terminal_that_is_too_narrow_has_it_all_the_same() -> None:
    assert "".join("".join(lines(3, "ab 1 %")).split()) == "ab1%"
