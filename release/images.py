"""The images of both programs as OCI archives, and what they hold as CycloneDX. The bench of the tests builds them."""

import os
from pathlib import Path

from release.commands import output
from release.errors import ReleaseError
from release.source import Release

ROOT = Path(__file__).parents[1]
REMEDY = "make release WITHOUT=images"


def build(release: Release) -> None:
    """Write images/ and sbom/. Raises ReleaseError for who is not root."""
    if os.geteuid() != 0:
        raise ReleaseError(f"images: building them needs root; without them: {REMEDY}")
    environ = os.environ | {"SOURCE_DATE_EPOCH": str(release.epoch)}
    output([ROOT / "scripts/setup", "--test"], ROOT, environ)  # the copy has no environment of its own, but a link
    for what, folder in (("releases", release.made / "images"), ("sbom", release.made / "sbom")):
        folder.mkdir()
        output([release.tree / "tests/e2e/bench/bench", what, folder], release.tree, environ)
