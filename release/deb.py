"""The Debian package: an environment of its own at /usr/lib/latencyprobe, for the Pythons of several Debian releases.

An environment finds its packages by the version of the Python that runs it: one package does for all of PYTHONS.
"""

import hashlib
import os
import sysconfig
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path

from release import archive, launcher, packages
from release.commands import output
from release.source import Release

PYTHONS = ("3.11", "3.12", "3.13")  # Debian 12, Ubuntu 24.04, Debian 13
PREFIX = "usr/lib/latencyprobe"
PROGRAMS = ("latencyprobe", "kubectl-latencyprobe")
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}  # as Debian calls them
MAINTAINER = "LatencyProbe maintainers <maintainers@latencyprobe.invalid>"
SCRIPTS = Path(__file__).parent / "debian"  # that dpkg runs
_BLOCK_BYTES = 4096  # of file systems: below it a link saves nothing
_CONTROL = """\
Package: latencyprobe
Version: {version}
Architecture: {architecture}
Maintainer: {maintainer}
Installed-Size: {kib}
Depends: python3 (>= {first}), python3 (<< {behind}), libbpf1 (>= 1:1.1), libc6 (>= 2.28), libgcc-s1, libstdc++6, zlib1g
Section: net
Priority: optional
Description: tell where an RPC's time went, from the kernel
 LatencyProbe measures every request and response on the ports that you
 name, in the kernel, without touching the application, and splits each
 into stages: was it the server's work, its slowness to read, the sending,
 the network, or the client itself? It prints latency reports against
 objectives, and sends linked OpenTelemetry spans and metrics.
 .
 This package is for hosts without Kubernetes, and has the plugin
 `kubectl latencyprobe`. Measuring needs Linux 5.10 or newer with BTF.
"""
_COPYRIGHT = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: latencyprobe

Files: *
Copyright: the LatencyProbe authors
License: Apache-2.0
Comment: The Python packages that come along have their own licences, in the
 folders *.dist-info below /usr/lib/latencyprobe/lib.

Files: usr/lib/latencyprobe/lib/python3/site-packages/latencyprobe_agent/bpf/*
Copyright: the LatencyProbe authors
License: GPL-2.0-only
Comment: The source is in the release's archive, latencyprobe-{version}.tar.gz.

License: Apache-2.0
 See /usr/share/common-licenses/Apache-2.0.

License: GPL-2.0-only
 See /usr/share/common-licenses/GPL-2.
"""
_CHANGELOG = """\
latencyprobe ({version}) unstable; urgency=medium

  * Release {version}.

 -- {maintainer}  {date}
"""


def build(release: Release, wheel: Path) -> Path:
    """Build the package of a wheel for this machine; return it."""
    machine = sysconfig.get_platform().rpartition("-")[2]
    architecture = MACHINES.get(machine, machine)
    downloads, root = release.work / "deb/packages", release.work / "deb/root"
    for python in PYTHONS:
        packages.fetch(release.tree, downloads, python, packages.linux(machine))
    files = contents(wheel, [*downloads.glob("*.whl")], release.version, release.epoch)
    files |= control(files, release.version, architecture)
    _put(root, files)
    _link(root)
    _settle(root, release.epoch)
    made = release.made / f"latencyprobe_{release.version}_{architecture}.deb"
    # one thread: how the others share the work is no part of the contents
    pack = ["dpkg-deb", "--root-owner-group", "-Zxz", "--threads-max=1", "--build", root, made]
    output(pack, release.work, os.environ | {"SOURCE_DATE_EPOCH": str(release.epoch)})
    return made


def contents(wheel: Path, others: list[Path], version: str, epoch: int) -> dict[str, bytes]:
    """Return the files that are installed, by their paths below /."""
    files = {f"{PREFIX}/lib/{name}": data for name, data in packages.library([wheel, *others]).items()}
    files[f"{PREFIX}/pyvenv.cfg"] = b"home = /usr/bin\ninclude-system-site-packages = false\n"
    for python in PYTHONS:
        files[f"{PREFIX}/lib/{packages.own(python)}/common.pth"] = f"../../{packages.COMMON}\n".encode()
    for program in PROGRAMS:
        files[f"{PREFIX}/bin/{program}"] = launcher.installed(f"/{PREFIX}")
    for name, data in packages.unpacked(wheel).items():
        if name.startswith("share/man/"):
            files[f"usr/{name}.gz"] = archive.gz(data)
        elif name.startswith("share/"):
            files[f"usr/{name}".replace("zsh/site-functions", "zsh/vendor-completions")] = data
    date = format_datetime(datetime.fromtimestamp(epoch, UTC))
    changelog = _CHANGELOG.format(version=version, maintainer=MAINTAINER, date=date)
    files["usr/share/doc/latencyprobe/changelog.gz"] = archive.gz(changelog.encode())
    files["usr/share/doc/latencyprobe/copyright"] = _COPYRIGHT.format(version=version).encode()
    return files


def control(files: dict[str, bytes], version: str, architecture: str) -> dict[str, bytes]:
    """Return what dpkg is told, below DEBIAN/."""
    major, minor = PYTHONS[-1].split(".")
    told = _CONTROL.format(
        version=version,
        architecture=architecture,
        maintainer=MAINTAINER,
        kib=sum(-(-len(data) // 1024) for data in set(files.values())),
        first=PYTHONS[0],
        behind=f"{major}.{int(minor) + 1}",
    )
    # Debian's sums of installed files (dpkg --verify), which are of this kind
    sums = (f"{hashlib.md5(data, usedforsecurity=False).hexdigest()}  {name}\n" for name, data in sorted(files.items()))
    texts = {"control": told, "md5sums": "".join(sums)}
    texts |= {name: (SCRIPTS / name).read_text() for name in ("postinst", "prerm")}
    return {f"DEBIAN/{name}": text.encode() for name, text in texts.items()}


def _put(root: Path, files: dict[str, bytes]) -> None:
    """Write files, equal ones once: much of numpy is the same for every Python, its linear algebra of 25 MB too."""
    written: dict[bytes, Path] = {}
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        first = written.setdefault(data, root / name)
        if first == root / name or len(data) < _BLOCK_BYTES:
            (root / name).write_bytes(data)
        else:
            (root / name).hardlink_to(first)


def _link(root: Path) -> None:
    (root / PREFIX / "bin/python3").symlink_to("../../../bin/python3")
    (root / "usr/bin").mkdir()
    for program in PROGRAMS:
        (root / "usr/bin" / program).symlink_to(f"../lib/latencyprobe/bin/{program}")


def _settle(root: Path, epoch: int) -> None:
    """Give every file its mode and the release's time, whoever builds it and when."""
    runs = {f"{PREFIX}/bin/{program}" for program in PROGRAMS} | {"DEBIAN/postinst", "DEBIAN/prerm"}
    for path in [*root.rglob("*"), root]:
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or str(path.relative_to(root)) in runs else 0o644)
        os.utime(path, (epoch, epoch), follow_symlinks=False)
