"""Writes a folder as an OCI image archive of one layer, without a registry, a daemon or a build tool.

    oci.py FOLDER ARCHIVE NAME [--entrypoint WORD...]

`ctr images import ARCHIVE` takes it. The layer is not compressed: nothing is sent anywhere, and importing is faster.
Equal folders give equal archives.
"""

import argparse
import hashlib
import io
import json
import tarfile
from pathlib import Path

IMAGE = "application/vnd.oci.image"


def layer(folder: Path) -> bytes:
    """All files below the folder as one tar, owned by root, with the time set to 0."""

    def normal(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.mtime = entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        return entry

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path in sorted(folder.rglob("*")):
            tar.add(path, arcname=str(path.relative_to(folder)), recursive=False, filter=normal)
    return buffer.getvalue()


def archive(content: bytes, name: str, entrypoint: list[str]) -> dict[str, bytes]:
    """The files of the archive for an image with this one layer: path → bytes."""
    files: dict[str, bytes] = {}

    def blob(data: bytes, media_type: str) -> dict[str, object]:
        digest = hashlib.sha256(data).hexdigest()
        files[f"blobs/sha256/{digest}"] = data
        return {"mediaType": f"{IMAGE}.{media_type}", "digest": f"sha256:{digest}", "size": len(data)}

    def document(value: object) -> bytes:
        return json.dumps(value, sort_keys=True).encode()

    tar = blob(content, "layer.v1.tar")
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": entrypoint, "Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"], "WorkingDir": "/"},
        "rootfs": {"type": "layers", "diff_ids": [tar["digest"]]},
    }
    manifest = {"schemaVersion": 2, "config": blob(document(config), "config.v1+json"), "layers": [tar]}
    entry = blob(document(manifest | {"mediaType": f"{IMAGE}.manifest.v1+json"}), "manifest.v1+json")
    entry["annotations"] = {"io.containerd.image.name": name}
    files["oci-layout"] = document({"imageLayoutVersion": "1.0.0"})
    files["index.json"] = document({"schemaVersion": 2, "manifests": [entry]})
    return files


def main() -> None:
    """Read the command line, write the archive."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("archive", type=Path)
    parser.add_argument("name")
    parser.add_argument("--entrypoint", nargs="+", default=["/bin/sh"])
    options = parser.parse_args()
    with tarfile.open(options.archive, "w") as tar:
        for path, data in archive(layer(options.folder), options.name, options.entrypoint).items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(data), 0o644
            tar.addfile(entry, io.BytesIO(data))


if __name__ == "__main__":
    main()
