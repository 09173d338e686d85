"""scripts/sbom.py: what an image holds is in its bill of materials, all of it and nothing else."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
STATUS = """\
Package: libbpf1
Status: install ok installed
Architecture: amd64
Source: libbpf (1.5.0-3)
Version: 1:1.5.0-3

Package: dash
Status: install ok installed
Architecture: amd64
Version: 3

Package: ca-certificates
Status: install ok installed
Architecture: all
Version: 2025

Package: gone
Status: deinstall ok config-files
Architecture: amd64
Version: 2
"""


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """The root of a small image."""
    files = {
        "etc/os-release": 'ID=debian\nVERSION_ID="13"\n',
        "var/lib/dpkg/status": STATUS,
        "var/lib/dpkg/info/libbpf1:amd64.list": "/.\n/usr/lib/libbpf.so.1\n",
        "usr/lib/libbpf.so.1": "library",
        "var/lib/dpkg/info/dash.list": "/.\n/usr/bin/dash\n/usr/share/doc/dash/copyright\n",
        "usr/share/doc/dash/copyright": "the shell was taken out",
        "var/lib/dpkg/info/ca-certificates.list": "/.\n/usr/share/ca-certificates/mozilla/one.crt\n",
        "etc/ssl/certs/ca-certificates.crt": "made of one.crt, which was taken out",
        "opt/latencyprobe/lib/python3.13/site-packages/msgspec-0.22.0.dist-info/METADATA": (
            "Metadata-Version: 2.4\nName: msgspec\nVersion: 0.22.0\nLicense-Expression: BSD-3-Clause\n"
        ),
        "usr/lib/latencyprobe/bpf/exchange.bpf.o": "program",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def run(root: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "scripts/sbom.py", root, "agent", "0.1.0"]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "0"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def document(image: Path) -> dict[str, Any]:
    return dict(json.loads(run(image).stdout))


def test_debian_and_python_packages_and_ebpf_objects_are_named_and_nothing_else(document: dict[str, Any]) -> None:
    found = {one["name"]: (one["type"], one.get("version"), one.get("purl")) for one in document["components"]}

    debian = "pkg:deb/debian/libbpf1@1:1.5.0-3?arch=amd64&distro=debian-13&upstream=libbpf%401.5.0-3"
    authorities = "pkg:deb/debian/ca-certificates@2025?arch=all&distro=debian-13&upstream=ca-certificates%402025"
    assert found == {
        "libbpf1": ("library", "1:1.5.0-3", debian),
        "ca-certificates": ("library", "2025", authorities),
        "msgspec": ("library", "0.22.0", "pkg:pypi/msgspec@0.22.0"),
        "exchange.bpf.o": ("file", None, None),
    }


def test_it_says_what_it_is_of_and_under_which_licences(document: dict[str, Any]) -> None:
    licences = {one["name"]: one.get("licenses") for one in document["components"]}
    (program,) = (one for one in document["components"] if one["type"] == "file")

    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    assert (
        document["metadata"]["component"].items() >= {"name": "agent", "version": "0.1.0", "type": "container"}.items()
    )
    assert document["metadata"]["timestamp"] == "1970-01-01T00:00:00+00:00"
    assert licences["msgspec"][0]["license"]["id"] == "BSD-3-Clause"
    assert licences["exchange.bpf.o"][0]["license"]["id"] == "GPL-2.0-only"
    assert program["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(b"program").hexdigest()}]


def test_the_same_files_are_the_same_bits_and_another_file_is_another_document(image: Path) -> None:
    first = run(image).stdout
    assert run(image).stdout == first
    (image / "usr/lib/latencyprobe/bpf/exchange.bpf.o").write_text("another")
    assert json.loads(run(image).stdout)["serialNumber"] != json.loads(first)["serialNumber"]


def test_a_folder_that_is_no_image_is_refused(image: Path) -> None:
    (image / "var/lib/dpkg/status").write_text("")

    assert "0 Debian and 1 Python packages: not the root of an image" in run(image).stderr
    assert run(image).returncode != 0
