"""Archives of which equal contents are equal bits: sorted names, one time, nobody's user, no compressor's clock."""

import gzip
import io
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path


def tar_gz(files: dict[str, bytes], epoch: int, executable: frozenset[str] = frozenset()) -> bytes:
    """Return an archive of these files, by their paths in it."""
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", filename="", mtime=epoch) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name in sorted(files):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime = len(files[name]), epoch
            entry.mode = 0o755 if name in executable else 0o644
            tar.addfile(entry, io.BytesIO(files[name]))
    return buffer.getvalue()


def repacked(archive: Path, epoch: int) -> bytes:
    """Return another's archive made such."""
    with tarfile.open(archive) as tar:
        files = {entry.name: tar.extractfile(entry) for entry in tar if entry.isfile()}
        return tar_gz({name: file.read() for name, file in files.items() if file}, epoch)


def gz(content: bytes) -> bytes:
    """Return compressed bytes, as `gzip -9n` does."""
    return gzip.compress(content, 9, mtime=0)


def below(folder: Path, prefix: str = "") -> Iterator[tuple[str, bytes]]:
    """Yield name and content of every file of a folder; links are followed."""
    every = (Path(base, name) for base, _, names in os.walk(folder, followlinks=True) for name in names)
    for path in sorted(every):
        yield f"{prefix}{path.relative_to(folder)}", path.read_bytes()
