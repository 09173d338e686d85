"""A script named kubectl on the PATH."""

from collections.abc import Callable
from pathlib import Path

import pytest

FakeKubectl = Callable[[str], Path]


@pytest.fixture
def fake_kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeKubectl:
    """Put a shell script on the PATH, which also writes its arguments to the file that is returned."""

    def install(script: str) -> Path:
        called = tmp_path / "called"
        program = tmp_path / "bin" / "kubectl"
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\necho \"$@\" > '{called}'\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(program.parent), prepend=":")
        return called

    return install
