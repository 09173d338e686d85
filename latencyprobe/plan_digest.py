"""The digest of a plan by those of its parts: where it changes only what is another one is hashed again. Pure."""

import hashlib
from collections.abc import Sequence

import msgspec

from latencyprobe.plan import NodePlan, Pod, Target

PART_BYTES = hashlib.sha256().digest_size


def digest_of(plan: NodePlan, parts: Sequence[bytes] | None = None) -> str:
    """Return the SHA-256 (hex) over a plan's content: over all but its generation and what it says of its digest, its
    targets and pods by their own. `parts`: those, if they are known, of the targets and then of the pods."""
    rest = msgspec.json.encode(msgspec.structs.replace(plan, generation=0, digest="", targets=(), pods=()))
    if parts is None:
        parts = [*map(part_digest, plan.targets), *map(part_digest, plan.pods)]
    return hashlib.sha256(b"".join((rest, b"%d" % len(plan.targets), *parts))).hexdigest()


def part_digest(part: Target | Pod) -> bytes:
    """Return the SHA-256 over a target or a pod of a plan, of PART_BYTES."""
    return hashlib.sha256(msgspec.json.encode(part)).digest()
