"""release/deb.py: what dpkg is told, and the package itself, unpacked where nothing of the repository is."""

import gzip
import os
import re
import subprocess
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from release import deb
from release.source import Release

# What Depends brings: glibc's and its loader, gcc's, zlib. Everything else must come along.
OF_THE_SYSTEM = re.compile(r"(?:libc|libm|libdl|libpthread|librt|libgcc_s|libz|libstdc\+\+|ld-linux[\w-]*)\.so\.\d+")


def test_dpkg_is_told_of_all_pythons_that_it_is_for_and_of_no_other() -> None:
    told = deb.control({"usr/a": b"x" * 5000, "usr/b": b"x" * 5000, "usr/c": b""}, "1.2.3", "amd64")

    fields = dict(re.findall(r"^([\w-]+): (.*)$", told["DEBIAN/control"].decode(), re.MULTILINE))
    assert (fields["Version"], fields["Architecture"], fields["Installed-Size"]) == ("1.2.3", "amd64", "5")
    assert fields["Depends"].startswith("python3 (>= 3.11), python3 (<< 3.14), libbpf1 ")
    assert len(fields["Description"]) < 60
    assert [line.split(b"  ")[1] for line in told["DEBIAN/md5sums"].splitlines()] == [b"usr/a", b"usr/b", b"usr/c"]


@pytest.fixture(scope="module")
def root(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its files, and the system's Python where its own link looks for it."""
    folder = tmp_path_factory.mktemp("unpacked")
    subprocess.run(["dpkg-deb", "--raw-extract", package, folder], check=True)
    (folder / "usr/bin/python3").symlink_to("/usr/bin/python3")
    return folder


@pytest.mark.slow
@pytest.mark.timeout(1200)
class TestPackage:
    """The package of this tree."""

    def test_programs_start_with_what_is_in_it_alone(self, root: Path, begun: Release, tmp_path: Path) -> None:
        environment = root / deb.PREFIX
        for program, called in (("latencyprobe", "latencyprobe"), ("kubectl-latencyprobe", "kubectl latencyprobe")):
            assert (root / "usr/bin" / program).resolve() == environment / "bin" / program
            command = [environment / "bin/python3", "-I", environment / "bin" / program, "--version"]
            done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env={})
            assert (done.stdout, done.stderr) == (f"{called} {begun.version}\n", "")
        asks = "import numpy, google.protobuf, pycxxfilt, sys; print(*sys.path)"
        done = subprocess.run(
            [environment / "bin/python3", "-I", "-c", asks], capture_output=True, text=True, check=True
        )
        assert "dist-packages" not in done.stdout

    def test_each_python_has_the_same_packages(self, root: Path) -> None:
        lib = root / deb.PREFIX / "lib"
        assert {path.name for path in lib.iterdir()} == {"python3", *(f"python{python}" for python in deb.PYTHONS)}
        compiled = [
            {path.name for path in (lib / f"python{python}/site-packages").glob("*.dist-info")}
            for python in deb.PYTHONS
        ]
        assert all(names == compiled[0] for names in compiled)
        assert len(compiled[0]) >= 3

    def test_libraries_need_nothing_that_it_does_not_depend_on(self, root: Path) -> None:
        libraries = [path for path in root.rglob("*.so*") if path.is_file()]
        brought = {path.name for path in libraries}
        needed = set()
        for path in libraries:
            with path.open("rb") as file:
                dynamic = ELFFile(file).get_section_by_name(".dynamic")
                needed |= {tag.needed for tag in dynamic.iter_tags("DT_NEEDED")}
        assert {name for name in needed - brought if not OF_THE_SYSTEM.fullmatch(name)} == set()

    def test_sums_are_those_of_its_files(self, root: Path) -> None:
        subprocess.run(["md5sum", "--check", "--quiet", root / "DEBIAN/md5sums"], cwd=root, check=True)

    def test_files_are_roots_and_nothing_is_written_by_others(self, package: Path) -> None:
        listing = subprocess.run(["dpkg-deb", "-c", package], capture_output=True, text=True, check=True).stdout
        assert {line.split()[1] for line in listing.splitlines()} == {"root/root"}
        assert {line[:10] for line in listing.splitlines()} <= {
            "drwxr-xr-x",
            "-rw-r--r--",
            "-rwxr-xr-x",
            "lrwxrwxrwx",
        } | {"hrw-r--r--"}
        assert "__pycache__" not in listing

    def test_manual_completions_and_papers_are_where_debian_has_them(self, root: Path, begun: Release) -> None:
        share = root / "usr/share"
        page = gzip.decompress((share / "man/man1/latencyprobe-run.1.gz").read_bytes())
        assert page.startswith(b'.TH "LATENCYPROBE-RUN" "1"')
        assert (share / "bash-completion/completions/latencyprobe").exists()
        assert (share / "zsh/vendor-completions/_latencyprobe").exists()
        assert (share / "fish/vendor_completions.d/latencyprobe.fish").exists()
        changes = gzip.decompress((share / "doc/latencyprobe/changelog.gz").read_bytes()).decode()
        assert changes.startswith(f"latencyprobe ({begun.version}) ")
        assert "GPL-2.0-only" in (share / "doc/latencyprobe/copyright").read_text()

    def test_scripts_of_dpkg_are_scripts(self, root: Path) -> None:
        for name in ("postinst", "prerm"):
            assert os.access(root / "DEBIAN" / name, os.X_OK)
            subprocess.run(["sh", "-n", root / "DEBIAN" / name], check=True)
