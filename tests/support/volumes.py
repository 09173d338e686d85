"""Small volumes of a test's own: a size-limited tmpfs that can be filled up and made read-only. Needs root."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FILLER = "filler"


@contextmanager
def volume(folder: Path, size: str) -> Iterator[Path]:
    """Mount a file system of that size (as `mount` writes it) at a folder, which is made."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "latencyprobe-test", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def fill(folder: Path) -> None:
    """Leave no room on a volume."""
    with (folder / FILLER).open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            return


def make_room(folder: Path) -> None:
    """Give back what `fill` took."""
    (folder / FILLER).unlink()


def read_only(folder: Path, yes: bool = True) -> None:
    """Make a volume read-only, which needs that nobody has a file open for writing there, or writable again."""
    subprocess.run(["mount", "-o", f"remount,{'ro' if yes else 'rw'}", folder], check=True)
