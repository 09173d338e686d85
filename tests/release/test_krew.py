"""release/krew.py: the manifest, the program that says which Python it needs, and both as krew itself takes them."""

import hashlib
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from release import krew, launcher, packages
from release.source import Release
from tests.release.conftest import ROOT

MADE = {system: "/".join(system).encode() for system in krew.PLATFORMS}


def test_manifest_names_each_archive_with_its_sum() -> None:
    plugin = yaml.safe_load(krew.manifest("1.2.3", MADE, "https://here/v1.2.3"))

    assert (plugin["kind"], plugin["metadata"]["name"], plugin["spec"]["version"]) == (
        "Plugin",
        "latencyprobe",
        "v1.2.3",
    )
    found = {tuple(one["selector"]["matchLabels"].values()): one for one in plugin["spec"]["platforms"]}
    assert found.keys() == krew.PLATFORMS.keys()
    for system, one in found.items():
        assert one["uri"] == f"https://here/v1.2.3/kubectl-latencyprobe_1.2.3_{'_'.join(system)}.tar.gz"
        assert one["sha256"] == hashlib.sha256(MADE[system]).hexdigest()
        assert one["bin"] == "kubectl-latencyprobe"


def test_its_words_are_as_the_index_of_krew_wants_them() -> None:
    spec = yaml.safe_load(krew.manifest("1.2.3", MADE, "https://here"))["spec"]
    assert len(spec["shortDescription"]) <= 50
    assert "Python 3.11 to 3.14" in spec["caveats"]


def test_a_python_that_it_has_nothing_for_is_told_which_it_needs(tmp_path: Path) -> None:
    program = tmp_path / "kubectl-latencyprobe"
    program.write_bytes(launcher.portable(("3.98", "3.99")))

    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False)
    running = "{}.{}".format(*sys.version_info)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"kubectl-latencyprobe: python3 is {running}, and 3.98, 3.99 are what it needs\n"


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_krew_installs_the_plugin_by_the_manifest(begun: Release, built: Path, tmp_path: Path) -> None:
    bench = subprocess.run(
        [ROOT / "tests/e2e/bench/bench", "program", "krew"], capture_output=True, text=True, check=True
    )
    this = ("linux", {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()])
    made = krew.archives(begun, built)
    plugin, archive = tmp_path / "latencyprobe.yaml", tmp_path / krew.name(begun.version, this)
    plugin.write_text(krew.manifest(begun.version, made, "https://nowhere.invalid"))
    archive.write_bytes(made[this])
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "KREW_ROOT": str(tmp_path / "krew")}
    install = [bench.stdout.strip(), "install", f"--manifest={plugin}", f"--archive={archive}"]
    done = subprocess.run(install, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

    def ask(*words: str | Path) -> subprocess.CompletedProcess[str]:
        command = ["/usr/bin/python3", "-I", tmp_path / "krew/bin/kubectl-latencyprobe", *words]
        return subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert ask("--version").stdout == f"kubectl latencyprobe {begun.version}\n"
    assert "kind: LatencyProbe" in ask("init", "--port", "6379").stdout
    assert ask("validate", ROOT / "examples/redis.yaml").returncode == 0
    assert "kind: PrometheusRule" in ask("rules", "-f", ROOT / "examples/redis.yaml").stdout
    assert "Traceback" not in ask("report").stderr
    lacking = ask("run", "--port", "6379")
    assert (lacking.returncode, lacking.stdout) == (1, "")
    assert lacking.stderr.startswith("latencyprobe: the command 'run' needs numpy, which is not installed")


def test_every_archive_has_packages_for_each_python() -> None:
    """Those that are compiled have a wheel for each; what is named is pinned."""
    pinned = (ROOT / packages.PINNED).read_text()
    assert len(packages.pins(pinned, krew.NEEDED)) == len(krew.NEEDED)
