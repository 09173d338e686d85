"""`latencyprobe record`: what it refuses, with words that say what to do; and `show` of files."""

import gzip
from pathlib import Path

import pytest

from latencyprobe import group
from latencyprobe_agent.recording import snapshot
from tests.latencyprobe_agent.test_recording_snapshot import example


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "one.lprec"
    path.write_bytes(snapshot.encode(example()))
    return path


def refused(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert group.run(["record", *map(str, words)]) in (1, 2)
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "say whose: --pid, --cgroup, --comm, or --all"),
        (["--all", "--with", "syscalls,blocks"], "'blocks' is none of syscalls, switches, wakeups"),
        (["--all", "--buffer", "1.5"], "is no size from 4KiB to 256MiB, such as 1.5MiB"),
        (["--all", "--buffer", "1KiB"], "is no size from 4KiB to 256MiB, such as 1.5MiB"),
        (["--all", "--on", "nothing"], "'nothing' is not one of"),
        (["--all", "--count", "0"], "--count"),
    ],
)
def test_what_makes_no_sense_is_refused(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said in refused(capsys, *words)


def test_without_a_recorder_there_is_nobody_to_ask(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert f"no recorder writes there: start `latencyprobe record --dir {tmp_path}`" in refused(
        capsys, "trigger", "--dir", tmp_path
    )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"just text", "is no snapshot: `latencyprobe record` writes them"),
        (gzip.compress(b"just text"), "is no snapshot: `latencyprobe record` writes them"),
        (snapshot.encode(example())[:-9], "is cut short: it was not written, or not copied, to its end"),
    ],
    ids=["text", "gzip", "cut"],
)
def test_a_wrong_file_is_named_with_its_fault(
    content: bytes, said: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_bytes(content)
    assert f"latencyprobe: {file} {said}\n" == refused(capsys, "show", file)


def test_a_header_that_is_no_utf_8_is_damage(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_bytes(gzip.compress(snapshot.MARK + b"\x03\0\0\0" + b"\x81\xa1\xff"))  # msgpack: {"\xff": ...
    assert f"latencyprobe: {file} is damaged (its header: 'utf-8' codec can't" in refused(capsys, "show", file)


@pytest.mark.parametrize(
    ("form", "begins"), [("text", "fsync took"), ("json", '{"version":1'), ("html", "<!doctype html>")]
)
def test_a_snapshot_is_shown_in_each_form(
    form: str, begins: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 0 == group.run(["record", "show", str(file), "-o", form])
    assert capsys.readouterr().out.startswith(begins)
