"""The pages name tests; each of them is there."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PAGES = [TESTS.parent / "CONTRIBUTING.md", *sorted((TESTS.parent / "docs").rglob("*.md"))]
FILES = {path.name for path in TESTS.rglob("*.py")}


def _each(several: re.Match[str]) -> str:
    """`test_{a,b}.py`: one name for each."""
    return " ".join(f"{several[1]}{one}.py" for one in several[2].split(","))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_test_that_the_documentation_names_exists(page):
    text = re.sub(r"(test_\w*)\{([\w,]+)\}\.py", _each, page.read_text())
    named = set(re.findall(r"`(test_\w+)`", text))
    files = set(re.findall(r"\b(test_[a-z0-9_]+\.py)\b", text))
    defined = {name for path in TESTS.rglob("*.py") for name in re.findall(r"def (test_\w+)", path.read_text())}

    assert len(named) > 50 or page.name not in ("proofs.md", "threat-model.md")
    assert set() == named - defined
    assert set() == files - FILES


ROW = re.compile(r'^\t"(\w+) (\d+) (\S+\.py) ?(\w*)"$', re.MULTILINE)
LARGE = ROW.findall((TESTS.parent / "scripts/large").read_text())


@pytest.mark.parametrize(("variable", "_", "file", "test"), LARGE)
def test_each_test_that_make_test_large_makes_larger_reads_how_many(
    variable: str, _: str, file: str, test: str
) -> None:
    text = (TESTS / file).read_text()
    assert f'"{variable}"' in text
    assert [name for name in re.findall(r"def (test_\w+)", text) if test in name]


def test_make_test_large_has_all_numbers_that_the_proofs_give() -> None:
    given = re.findall(r"\b([A-Z]+(?:_S)?)=(\d+)\b", (TESTS.parent / "docs/proofs.md").read_text())
    assert set(given) - {(variable, size) for variable, size, *_ in LARGE} == set()
