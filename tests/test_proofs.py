"""docs/proofs.md and docs/threat-model.md name tests; each of them is there."""

import re
from pathlib import Path

TESTS = Path(__file__).parent


def test_every_test_that_the_documentation_names_exists():
    pages = "".join((TESTS.parent / "docs" / page).read_text() for page in ("proofs.md", "threat-model.md"))
    named = set(re.findall(r"`(test_\w+)`", pages))
    files = set(re.findall(r"`(test_\w+\.py)`", pages))
    defined = {name for path in TESTS.rglob("*.py") for name in re.findall(r"def (test_\w+)", path.read_text())}

    assert len(named) > 50
    assert set() == named - defined
    assert set() == files - {path.name for path in TESTS.rglob("*.py")}
