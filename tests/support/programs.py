"""Programs of others that a test drives: `make test` installs them, `make check` goes without."""

import shutil

import pytest


def needs(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not shutil.which(program), reason=f"{program} is not installed")
