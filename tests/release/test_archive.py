"""release/archive.py: equal contents are equal bits."""

import gzip
import io
import os
import tarfile
from pathlib import Path

from release import archive

EPOCH = 1_700_000_000


def test_order_of_files_is_no_part_of_an_archive_and_contents_are() -> None:
    first = archive.tar_gz({"b": b"2", "a": b"1"}, EPOCH)

    assert archive.tar_gz({"a": b"1", "b": b"2"}, EPOCH) == first
    assert archive.tar_gz({"a": b"1", "b": b"3"}, EPOCH) != first


def test_entries_are_nobodys_and_of_one_time() -> None:
    packed = archive.tar_gz({"bin/run": b"#!", "text": b"x" * 9000}, EPOCH, frozenset({"bin/run"}))

    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        entries = {one.name: (one.mode, one.uid, one.gid, one.uname, one.mtime) for one in tar}
        assert tar.extractfile("text").read() == b"x" * 9000
    assert entries == {"bin/run": (0o755, 0, 0, "", EPOCH), "text": (0o644, 0, 0, "", EPOCH)}


def test_an_archive_of_others_loses_its_times_and_owners(tmp_path: Path) -> None:
    packed = []
    for name, when in (("one", 1), ("two", 2)):
        (tmp_path / "Chart.yaml").write_text("name: latencyprobe\n")
        os.utime(tmp_path / "Chart.yaml", (when, when))
        with tarfile.open(tmp_path / name, "w:gz") as tar:
            tar.add(tmp_path / "Chart.yaml", arcname="latencyprobe/Chart.yaml")
        packed.append(archive.repacked(tmp_path / name, EPOCH))

    assert packed[0] == packed[1] == archive.tar_gz({"latencyprobe/Chart.yaml": b"name: latencyprobe\n"}, EPOCH)


def test_compressed_bytes_tell_no_time() -> None:
    assert archive.gz(b"page") == archive.gz(b"page")
    assert gzip.decompress(archive.gz(b"page")) == b"page"
    assert archive.gz(b"page")[4:8] == bytes(4)


def test_a_folder_that_is_a_link_is_in_an_archive_under_its_own_name(tmp_path: Path) -> None:
    """The chart's CRDs are: without them it installs no kind."""
    (tmp_path / "crds").mkdir()
    (tmp_path / "crds/probe.yaml").write_text("kind")
    (tmp_path / "chart").mkdir()
    (tmp_path / "chart/crds").symlink_to("../crds")
    assert dict(archive.below(tmp_path)) == {"chart/crds/probe.yaml": b"kind", "crds/probe.yaml": b"kind"}
