"""What is installed without pip: our wheel and the pinned packages it needs, for several versions of Python at once.

Below lib/ each version has its own site-packages, as in any environment, with what is compiled for it alone; all else
is in python3/site-packages.
"""

import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

from release.commands import output
from release.errors import ReleaseError

COMMON = "python3/site-packages"
PINNED = Path("probe-image/requirements.txt")
# The C library that all of them must do with: 2.28 is of 2018. Newest first, as pip prefers.
_LINUX = (*(f"manylinux_2_{minor}" for minor in range(28, 16, -1)), "manylinux2014", "manylinux2010", "manylinux1")


def linux(machine: str) -> tuple[str, ...]:
    """Return pip's names of a Linux, as of x86_64 or aarch64."""
    return tuple(f"{name}_{machine}" for name in _LINUX)


def own(python: str) -> str:
    """Return where below lib/ a Python such as 3.11 has its packages."""
    return f"python{python}/site-packages"


def fetch(tree: Path, to: Path, python: str, platforms: Sequence[str], only: frozenset[str] | None = None) -> None:
    """Download wheels of what is pinned, by hash, for a Python such as 3.11. `only`: names; None takes all."""
    wanted = to / "requirements.txt"
    to.mkdir(parents=True, exist_ok=True)
    wanted.write_text("".join(pins((tree / PINNED).read_text(), only)))
    pip = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "-q",
        "--disable-pip-version-check",
        "--require-hashes",
        "--no-deps",
    ]
    places = [word for name in platforms for word in ("--platform", name)]
    for_python = ["--only-binary", ":all:", "--implementation", "cp", "--python-version", python]
    output([*pip, *for_python, *places, "--dest", to, "-r", wanted], to)
    wanted.unlink()


def pins(requirements: str, only: frozenset[str] | None) -> list[str]:
    """Return the entries of requirements, each with its hashes. Raises ReleaseError where one of `only` is missing."""
    entries = {}
    for entry in requirements.replace("\\\n", "\0").splitlines():
        if "==" in entry:
            entries[entry.partition("==")[0]] = entry.replace("\0", "\\\n") + "\n"
    if missing := (only or frozenset()) - entries.keys():
        raise ReleaseError(f"{PINNED}: {', '.join(sorted(missing))} not pinned: run scripts/pin")
    return [text for name, text in entries.items() if only is None or name in only]


def folder(wheel: str) -> str:
    """Return where below lib/ a wheel belongs, by its name: that of one version of Python, or of all."""
    python, interface, _ = wheel.removesuffix(".whl").rsplit("-", 3)[1:]
    if python.startswith("cp") and interface.startswith("cp"):
        return own(f"{python[2]}.{python[3:]}")
    return COMMON


def unpacked(wheel: Path) -> dict[str, bytes]:
    """Return the files of a wheel, as they lie in a folder of packages; what it shares (man pages) under `share/`.

    Raises ReleaseError where the wheel has something else to install.
    """
    found = {}
    with zipfile.ZipFile(wheel) as archive:
        for name in (entry.filename for entry in archive.infolist() if not entry.is_dir()):
            top, _, rest = name.partition("/")
            if top.endswith(".data"):
                kind, _, place = rest.partition("/")
                if kind == "scripts":
                    continue  # commands of others
                if kind not in ("purelib", "platlib") and not place.startswith("share/"):
                    raise ReleaseError(f"{wheel.name}: {name}: no place is known for it")
                found[place] = archive.read(name)
            else:
                found[name] = archive.read(name)
    return found


def library(wheels: Sequence[Path]) -> dict[str, bytes]:
    """Return the files of lib/ with all these packages in it. What they share is left out."""
    files = {}
    for wheel in sorted(wheels):
        place = folder(wheel.name)
        files |= {f"{place}/{name}": data for name, data in unpacked(wheel).items() if not name.startswith("share/")}
    return files
