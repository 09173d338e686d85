"""A slow disk on a node: a file system on a loop device, whose requests the kernel throttles by pod (blk-throttle)."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.bench.cluster import STATE, Cluster

IMAGE_SIZE = "192M"
_CGROUPS = Path("/sys/fs/cgroup")
_LIMITS = {  # of version 2 and of version 1
    "io.max": "{device} riops={iops} wiops={iops}",
    "blkio.throttle.read_iops_device": "{device} {iops}",
    "blkio.throttle.write_iops_device": "{device} {iops}",
}


@dataclass(frozen=True)
class SlowDisk:
    """`folder`: where it is mounted on its node. `device`: its numbers, as in `7:0`."""

    folder: Path
    device: str

    def throttle(self, pod: dict[str, Any], iops: int) -> None:
        """Let the containers of a pod that runs have so many requests a second of it."""
        containers = list(_CGROUPS.glob(f"**/pod{pod['metadata']['uid']}/*/"))
        limits = [container / name for container in containers for name in _LIMITS if (container / name).exists()]
        assert limits, f"no cgroup limits what a pod asks of a disk: {containers}"
        for file in limits:
            file.write_text(_LIMITS[file.name].format(device=self.device, iops=iops))


@contextmanager
def slow_disk(cluster: Cluster, node: str, file: str, file_mib: int) -> Iterator[SlowDisk]:
    """One for the block, with a file that is not in memory. It goes when the last pod that uses it has gone."""
    image, folder = STATE / f"disk-{node}.img", STATE / f"disk-{node}"
    folder.mkdir(exist_ok=True)
    cluster.in_node(node, "truncate", "-s", IMAGE_SIZE, str(image))
    cluster.in_node(node, "mkfs.ext4", "-q", "-F", "-O", "^has_journal", str(image))
    mount = ("mount", "-o", "loop", str(image), str(folder))
    cluster.in_node(node, *mount)
    try:
        cluster.in_node(node, "dd", "if=/dev/zero", f"of={folder / file}", "bs=1M", f"count={file_mib}")
        cluster.in_node(node, "umount", str(folder))  # and nothing of it is left in memory
        cluster.in_node(node, *mount)
        yield SlowDisk(folder, cluster.in_node(node, "findmnt", "-no", "MAJ:MIN", str(folder)).strip())
    finally:
        cluster.in_node(node, "umount", "--lazy", str(folder))
        image.unlink()
