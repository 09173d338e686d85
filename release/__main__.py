"""`make release`: everything that a release consists of, into build/release/. Nothing is published.

    python -m release [--without PART]... [--url URL] [--to FOLDER]

The same commit gives the same bits, wherever and whenever, with the same versions of the tools.
"""

import hashlib
import os
import shutil
import sys
import tempfile
from pathlib import Path

import click

from release import archive, chart, deb, images, krew, manual, source, wheel
from release.commands import output
from release.errors import ReleaseError

ROOT = Path(__file__).parents[1]
PARTS = ("deb", "krew", "chart", "images")  # each can be left out; the wheel is quick, and others need it


@click.command()
@click.option("--without", multiple=True, type=click.Choice(PARTS), help="Leave this out; repeatable.")
@click.option("--url", default="https://RELEASES/VERSION", show_default=True, help="Below it krew finds the archives.")
@click.option("--to", default="build/release", show_default=True, type=click.Path(path_type=Path))
@click.option("--dirty", is_flag=True, help="Also of files that differ from the commit: to try it.")
def main(without: tuple[str, ...], url: str, to: Path, *, dirty: bool) -> None:
    """Build what a release consists of."""
    os.umask(0o022)  # a wheel has the modes of what is built
    try:
        version, epoch = source.version(ROOT), source.epoch(ROOT)
        if (changed := source.changes(ROOT)) and not dirty:
            raise ReleaseError(f"{len(changed)} files differ from the commit ({changed[0].strip()}): commit them first")
        (ROOT / "build").mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=ROOT / "build", prefix="release-") as work:
            made = Path(work) / "made"
            made.mkdir()
            release = source.Release(Path(work) / "tree", Path(work), made, version, epoch)
            build(release, frozenset(without), url.replace("VERSION", f"v{version}"))
            (made / "SHA256SUMS").write_text(sums(made))
            shutil.rmtree(to, ignore_errors=True)
            to.parent.mkdir(parents=True, exist_ok=True)
            made.rename(to)
    except ReleaseError as error:
        sys.exit(f"release: {error}")
    left_out = f"; left out: {', '.join(without)}" if without else ""
    say(f"{to}: {len(list(to.rglob('*')))} files of version {version}{left_out}")


def build(release: source.Release, without: frozenset[str], url: str) -> None:
    """Make all parts but those that are left out."""
    tree, made, version, epoch = release.tree, release.made, release.version, release.epoch
    source.copy(ROOT, tree)
    (made / f"latencyprobe-{version}.tar.gz").write_bytes(sources(tree, f"latencyprobe-{version}", epoch))
    say("eBPF programs")
    output(["make", "-C", tree, "bpf"], tree)
    say("man pages, completions, wheel")
    share = tree / "build/share"
    manual.write(share, version, epoch)
    shutil.copytree(share / "man/man1", made / "man")
    (made / "completions").mkdir()
    for place in manual.COMPLETIONS.values():
        shutil.copy(share / place, made / "completions")
    built = wheel.build(tree, made, epoch)
    if "deb" not in without:
        say("Debian package")
        deb.build(release, built)
    if "krew" not in without:
        say("plugin of kubectl")
        archives = krew.archives(release, built)
        for platform, content in archives.items():
            (made / krew.name(version, platform)).write_bytes(content)
        (made / "krew").mkdir()
        (made / "krew/latencyprobe.yaml").write_text(krew.manifest(version, archives, url))
    if "chart" not in without:
        say("chart, manifests")
        chart.package(release)
        chart.manifests(release)
    if "images" not in without:
        say("images: minutes")
        images.build(release)


def sources(tree: Path, name: str, epoch: int) -> bytes:
    """Return an archive of the sources, of the programs under the GPL too."""
    files = {f"{name}/{path}": data for path, data in archive.below(tree) if not path.startswith((".venv/", "build/"))}
    runs = frozenset(f"{name}/{path}" for path, _ in archive.below(tree) if (tree / path).stat().st_mode & 0o100)
    return archive.tar_gz(files, epoch, runs)


def sums(folder: Path) -> str:
    """Return what `sha256sum -c` takes."""
    lines = (f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in archive.below(folder))
    return "".join(lines)


def say(text: str) -> None:
    """Tell whoever waits."""
    click.echo(f"release: {text}", err=True)


if __name__ == "__main__":
    main()
