"""Print what an image holds as CycloneDX 1.6 JSON: Debian packages, Python packages, eBPF objects.

    python scripts/sbom.py ROOT NAME VERSION     the image's files at ROOT, for example of `buildah mount`

The same files give the same bits. Debian's `dpkg-query` reads the packages; SOURCE_DATE_EPOCH dates the document.
"""

import hashlib
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

_NO_CONTENT = ("/etc/", *(f"/usr/share/{name}/" for name in ("bug", "doc", "info", "lintian", "locale", "man", "menu")))
# What a package made of its files when it was installed, and may be all that is left of it.
_MADE = {"ca-certificates": ["/etc/ssl/certs/ca-certificates.crt"]}
_FIELDS = r"${db:Status-Status}\t${Package}\t${Version}\t${Architecture}\t${source:Package}\t${source:Version}\n"


def debian(root: Path) -> Iterator[Component]:
    """Yield the installed Debian packages of which more is left than settings and documentation."""
    told = _os_release(root)
    distro = f"{told['ID']}-{told['VERSION_ID']}"
    command = ["dpkg-query", f"--admindir={root / 'var/lib/dpkg'}", "--show", f"--showformat={_FIELDS}"]
    for line in subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines():
        status, name, version, arch, source, source_version = line.split("\t")
        if status == "installed" and _is_left(root, name, arch):
            more = {"arch": arch, "distro": distro, "upstream": f"{source}@{source_version}"}
            yield _component(name, version, PackageURL("deb", told["ID"], name, version, more))


def python(root: Path) -> Iterator[Component]:
    """Yield the Python packages of the image's environment."""
    for one in distributions(path=[str(path) for path in root.glob("opt/latencyprobe/lib/python3*/site-packages")]):
        name = one.metadata["Name"]
        licence = one.metadata.get("License-Expression")
        yield _component(name, one.version, PackageURL("pypi", None, name.lower(), one.version), licence)


def programs(root: Path) -> Iterator[Component]:
    """Yield the eBPF objects."""
    for path in root.glob("usr/lib/latencyprobe/bpf/*.bpf.o"):
        digest = HashType(alg=HashAlgorithm.SHA_256, content=hashlib.sha256(path.read_bytes()).hexdigest())
        licences = [LicenseFactory().make_from_string("GPL-2.0-only")]
        yield Component(name=path.name, type=ComponentType.FILE, hashes=[digest], licenses=licences, bom_ref=path.name)


def document(root: Path, name: str, version: str) -> str:
    """Return the document. Its serial number follows from the contents. Raises ValueError for no image of ours."""
    parts = [list(part(root)) for part in (debian, python, programs)]
    if not (parts[0] and parts[1]):
        raise ValueError(
            f"{root}: {len(parts[0])} Debian and {len(parts[1])} Python packages: not the root of an image"
        )
    components = sorted((one for part in parts for one in part), key=lambda one: str(one.bom_ref))
    contents = "\n".join(f"{one.bom_ref} {[each.content for each in one.hashes]}" for one in components)
    bom = Bom(components=components, serial_number=uuid.uuid5(uuid.NAMESPACE_URL, f"{name} {version}\n{contents}"))
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    bom.metadata.timestamp = datetime.fromtimestamp(int(epoch), UTC) if epoch else datetime.now(UTC)
    bom.metadata.component = Component(name=name, version=version, type=ComponentType.CONTAINER, bom_ref=name)
    bom.register_dependency(bom.metadata.component, components)
    return JsonV1Dot6(bom).output_as_string(indent=2)


def _is_left(root: Path, name: str, arch: str) -> bool:
    """Return whether a package has a file there; so says also one whose files dpkg does not list."""
    lists = (root / "var/lib/dpkg/info" / f"{stem}.list" for stem in (name, f"{name}:{arch}"))
    found = next((one for one in lists if one.exists()), None)
    if found is None:
        return True
    names = [line for line in found.read_text().splitlines() if not line.startswith(_NO_CONTENT)]
    files = (root / line[1:] for line in [*names, *_MADE.get(name, [])])
    return any(file.is_file() and not file.is_symlink() for file in files)


def _component(name: str, version: str, purl: PackageURL, licence: str | None = None) -> Component:
    licences = [LicenseFactory().make_from_string(licence)] if licence else []
    return Component(
        name=name,
        version=version,
        type=ComponentType.LIBRARY,
        purl=purl,
        bom_ref=purl.to_string(),
        licenses=licences,
    )


def _os_release(root: Path) -> dict[str, str]:
    lines = (root / "etc/os-release").read_text().splitlines()
    return {key: value.strip('"') for key, _, value in (line.partition("=") for line in lines if "=" in line)}


if __name__ == "__main__":
    _, folder, *words = sys.argv
    print(document(Path(folder), *words))
