"""The wheel where nothing of the repository is: what a user of `pipx install` gets, without the right to measure."""

import json
import os
import re
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from release.source import Release
from tests.release.conftest import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

Run = Callable[..., subprocess.CompletedProcess[str]]
# Root without any right, where the tests are root's; nobody else gains by it.
UNPRIVILEGED = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and what it depends on, in the versions that are tested."""
    folder = tmp_path_factory.mktemp("clean") / "environment"
    subprocess.run(["/usr/bin/python3", "-m", "venv", folder], check=True)
    pip = [folder / "bin/python", "-I", "-m", "pip", "-q", "--disable-pip-version-check"]  # -I: no PYTHONPATH
    subprocess.run([*pip, "install", "-c", ROOT / "constraints.txt", built], check=True)
    return folder


@pytest.fixture(scope="module")
def latencyprobe(installed: Path) -> Run:
    """Run the program, in its folder, knowing nothing of ours."""

    def run(*words: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
        environ = {"PATH": "/usr/bin:/bin", "HOME": str(installed.parent), "LANG": "C.UTF-8", **more}
        command = [*UNPRIVILEGED, installed / "bin/latencyprobe", *words]
        return subprocess.run(command, cwd=installed.parent, env=environ, capture_output=True, text=True, check=False)

    return run


def test_it_is_for_this_kind_of_machine_and_any_python(begun: Release, built: Path) -> None:
    assert re.fullmatch(rf"latencyprobe-{begun.version}-py3-none-linux_\w+\.whl", built.name)


def test_it_has_the_programs_that_were_compiled(begun: Release, built: Path) -> None:
    with zipfile.ZipFile(built) as archive:
        packed = {name: archive.read(name) for name in archive.namelist() if name.endswith(".bpf.o")}

    compiled = {path.name: path.read_bytes() for path in (begun.tree / "build/bpf").iterdir()}
    assert {Path(name).parent.as_posix() for name in packed} == {"latencyprobe_agent/bpf"}
    assert {Path(name).name: data for name, data in packed.items()} == compiled
    assert len(compiled) == len(list((ROOT / "bpf").glob("*.bpf.c")))


def test_it_has_the_texts_of_both_licences(built: Path) -> None:
    with zipfile.ZipFile(built) as archive:
        texts = {name.partition(".dist-info/licenses/")[2]: archive.read(name) for name in archive.namelist()}

    for name in ("LICENSE", "bpf/LICENSE"):
        assert texts.get(name) == (ROOT / name).read_bytes(), name


def test_programs_name_no_folder_of_who_compiled_them(begun: Release) -> None:
    for path in (begun.tree / "build/bpf").iterdir():
        content = path.read_bytes()
        assert str(begun.tree).encode() not in content, path.name
        assert b"./bpf/" in content, "their lines have names all the same"


def test_a_plain_install_has_all_that_commands_of_a_host_import(latencyprobe: Run, begun: Release) -> None:
    assert latencyprobe("--version").stdout == f"latencyprobe {begun.version}\n"
    assert latencyprobe("validate", ROOT / "examples/redis.yaml").returncode == 0
    told = {name: latencyprobe(name, "--help") for name in ("run", "top", "flame", "record", "tcprt", "init")}
    assert {name: done.stderr for name, done in told.items()} == dict.fromkeys(told, "")
    assert "pip install 'latencyprobe[operator]'" in latencyprobe("operator", LATENCYPROBE_NAMESPACE="watch").stderr


def test_doctor_finds_the_programs_in_it(latencyprobe: Run, installed: Path) -> None:
    done = latencyprobe("doctor", "-o", "json")

    findings = {line["subject"]: line for line in map(json.loads, done.stdout.splitlines())}
    assert findings["eBPF objects"]["verdict"] == "ok", done.stderr
    number, place = findings["eBPF objects"]["detail"].split(" in ")
    assert int(number) == len(list((ROOT / "bpf").glob("*.bpf.c")))
    assert Path(place).relative_to(installed).parts[-2:] == ("latencyprobe_agent", "bpf")
    assert findings["capabilities"]["verdict"] == "fail", "it had no right to measure"


def test_who_may_not_measure_is_told_so_by_run(latencyprobe: Run) -> None:
    done = latencyprobe("run", "--port", "6379", "--duration", "1s")

    assert done.returncode == 1
    assert "run as root" in done.stderr
    assert "Traceback" not in done.stderr


def test_man_pages_and_completions_are_where_a_prefix_has_them(installed: Path) -> None:
    share = installed / "share"
    assert (share / "man/man1/latencyprobe-run.1").exists()
    assert (share / "bash-completion/completions/latencyprobe").exists()
    assert (share / "zsh/site-functions/_latencyprobe").exists()
    assert (share / "fish/vendor_completions.d/latencyprobe.fish").exists()


def test_uninstalling_leaves_nothing(built: Path, tmp_path: Path) -> None:
    target = tmp_path / "environment"
    subprocess.run(["/usr/bin/python3", "-m", "venv", target], check=True)
    before = {path for path in target.rglob("*") if "__pycache__" not in path.parts}
    pip = [target / "bin/python", "-I", "-m", "pip", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--no-deps", built], check=True)
    subprocess.run([*pip, "uninstall", "-y", "latencyprobe"], check=True)

    assert {path for path in target.rglob("*") if path.is_file() and "__pycache__" not in path.parts} <= before
