"""docs/proofs.md names tests; each of them is there."""

import re
from pathlib import Path

TESTS = Path(__file__).parent


def test_every_test_that_the_documentation_names_exists():
    named = set(re.findall(r"`(test_\w+)`", (TESTS.parent / "docs" / "proofs.md").read_text()))
    defined = {name for path in TESTS.rglob("*.py") for name in re.findall(r"def (test_\w+)", path.read_text())}

    assert len(named) > 50
    assert set() == named - defined
