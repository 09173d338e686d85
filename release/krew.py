"""The plugin `kubectl latencyprobe` for krew: an archive for each system, and the manifest that names them.

What measures is left out: commands that read from a cluster, or write files for it, need a Python and nothing else.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import yaml

from release import archive, launcher, packages
from release.source import Release

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PROGRAM = "kubectl-latencyprobe"
_MACOS = "11_0"
# krew's (os, arch) → pip's
PLATFORMS = {
    ("linux", "amd64"): packages.linux("x86_64"),
    ("linux", "arm64"): packages.linux("aarch64"),
    ("darwin", "amd64"): (f"macosx_{_MACOS}_x86_64",),
    ("darwin", "arm64"): (f"macosx_{_MACOS}_arm64",),
}
NEEDED = frozenset(
    {"click", "jinja2", "markdown-it-py", "markupsafe", "mdurl", "msgspec", "pygments", "pyyaml", "rich", "urllib3"}
)
_DESCRIPTION = """\
Reads what LatencyProbe, an operator with eBPF agents, measures: the SLO
report of a namespace (kubectl latencyprobe report), its slowest RPCs and
where their time went (slow, explain). Writes a LatencyProbe from a Service
or a workload (init), checks files (validate) and makes Prometheus rules of
objectives (rules).
"""
_CAVEATS = """\
Needs Python {first} to {last} as `python3`, and LatencyProbe in the cluster.
"""


class _Readable(yaml.SafeDumper):
    """Writes texts of several lines as such."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, "|" if "\n" in text else None)


_Readable.add_representer(str, _text)


def archives(release: Release, wheel: Path) -> dict[tuple[str, str], bytes]:
    """Return the archive for each platform."""
    ours = {
        f"lib/{packages.COMMON}/{name}": data
        for name, data in packages.unpacked(wheel).items()
        if not name.startswith(("share/", "latencyprobe_agent/bpf/"))
    }
    ours |= {PROGRAM: launcher.portable(PYTHONS), "LICENSE": (release.tree / "LICENSE").read_bytes()}
    made = {}
    for platform, names in PLATFORMS.items():
        folder = release.work / "krew" / "-".join(platform)
        for python in PYTHONS:
            packages.fetch(release.tree, folder, python, names, NEEDED)
        library = packages.library([*folder.glob("*.whl")])
        files = ours | {f"lib/{name}": data for name, data in library.items()}
        made[platform] = archive.tar_gz(files, release.epoch, frozenset({PROGRAM}))
    return made


def name(version: str, platform: tuple[str, str]) -> str:
    """Return the name of an archive."""
    return f"{PROGRAM}_{version}_{'_'.join(platform)}.tar.gz"


def manifest(version: str, made: Mapping[tuple[str, str], bytes], url: str) -> str:
    """Return the Plugin whose archives will lie below `url`. Its file must be called latencyprobe.yaml."""
    platforms = [
        {
            "selector": {"matchLabels": {"os": system, "arch": machine}},
            "uri": f"{url}/{name(version, (system, machine))}",
            "sha256": hashlib.sha256(content).hexdigest(),
            "bin": PROGRAM,
        }
        for (system, machine), content in made.items()
    ]
    plugin = {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "latencyprobe"},
        "spec": {
            "version": f"v{version}",
            "shortDescription": "Tell where an RPC's time went",
            "description": _DESCRIPTION,
            "caveats": _CAVEATS.format(first=PYTHONS[0], last=PYTHONS[-1]),
            "platforms": platforms,
        },
    }
    return yaml.dump(plugin, Dumper=_Readable, sort_keys=False)
