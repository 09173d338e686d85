"""What of protobuf's wire format opentelemetry's messages cannot write: columns of integers, heads of messages."""

import numpy as np
from numpy.typing import NDArray


def head(field: int, length: int) -> bytes:
    """Return what stands before a message of this length that is the value of `field` (below 16)."""
    found = bytearray([field << 3 | 2])
    while length > 0x7F:
        found.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes([*found, length])


def heads(field: int, lengths: NDArray[np.integer]) -> NDArray[np.void]:
    """Return the same for many messages, V5[n]; of less than 256 MiB each."""
    rows = np.empty(len(lengths), [("field", "u1"), ("length", "V4")])
    rows["field"], rows["length"] = field << 3 | 2, varints(lengths, 4)
    return rows.view("V5")


def varints(values: NDArray[np.integer], width: int) -> NDArray[np.void]:
    """Return integers below 2^(7 * width) as V{width}[n]: 4 or 8 bytes, 7 bits in each, the lowest first."""
    x = values.astype("<u8")
    for bits, group in ((28, 64), (14, 32), (7, 16)):  # of each group of bits, the upper half moves to its place
        lower = np.uint64(sum(((1 << bits) - 1) << start for start in range(0, 64, group)))
        upper = lower << np.uint64(bits)
        x = (x & lower) | ((x & upper) << np.uint64(group // 2 - bits))
    x |= np.uint64(int.from_bytes(b"\x80" * (width - 1), "little"))
    return np.ascontiguousarray(x.view("u1").reshape(-1, 8)[:, :width]).view(f"V{width}").ravel()
