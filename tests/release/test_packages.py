"""release/packages.py: which wheel goes where, and what is asked for."""

import zipfile
from pathlib import Path

import pytest

from release import packages
from release.errors import ReleaseError

NUMPY = "numpy==2.4.6 \\\n    --hash=sha256:cc\n"
PINS = "# said by scripts/pin\nclick==8.5.1 \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb\n" + NUMPY


@pytest.mark.parametrize(
    ("wheel", "folder"),
    [
        ("numpy-2.4.6-cp311-cp311-manylinux_2_28_x86_64.whl", "python3.11/site-packages"),
        ("msgspec-0.22.0-cp314-cp314-macosx_11_0_arm64.whl", "python3.14/site-packages"),
        ("protobuf-7.36.2-cp310-abi3-manylinux2014_x86_64.whl", "python3/site-packages"),
        ("click-8.5.1-py3-none-any.whl", "python3/site-packages"),
        ("latencyprobe-0.1.0-py3-none-linux_x86_64.whl", "python3/site-packages"),
    ],
)
def test_what_is_compiled_for_one_python_is_its_own_and_all_else_is_common(wheel: str, folder: str) -> None:
    assert packages.folder(wheel) == folder


def test_pins_keep_their_hashes_and_are_all_or_those_that_are_named() -> None:
    assert "".join(packages.pins(PINS, None)) == PINS.partition("\n")[2]
    assert packages.pins(PINS, frozenset({"numpy"})) == [NUMPY]
    with pytest.raises(ReleaseError, match="rich not pinned: run scripts/pin"):
        packages.pins(PINS, frozenset({"rich"}))


def wheel(folder: Path, **files: str) -> Path:
    path = folder / "some-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def test_modules_lie_in_their_folder_and_what_is_shared_beside(tmp_path: Path) -> None:
    files = {"some/__init__.py": "1", "some-1.data/data/share/man/man1/some.1": "2", "some-1.data/scripts/some": "3"}
    built = wheel(tmp_path, **files)

    assert packages.unpacked(built) == {"some/__init__.py": b"1", "share/man/man1/some.1": b"2"}
    assert packages.library([built]) == {"python3/site-packages/some/__init__.py": b"1"}


def test_wheel_that_installs_elsewhere_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match=r"some-1\.data/data/etc/passwd: no place is known"):
        packages.unpacked(wheel(tmp_path, **{"some-1.data/data/etc/passwd": ""}))
