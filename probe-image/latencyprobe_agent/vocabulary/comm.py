"""The name of a thread, as the kernel has it: `comm` of linux/sched.h, 16 bytes that the thread itself chose."""

import numpy as np
from numpy.typing import NDArray

from latencyprobe.text import printable


def comm(field: NDArray[np.uint8]) -> str:
    """Return the name in a field of a record (u1[16]), fit for a terminal."""
    return printable(field.tobytes().partition(b"\0")[0].decode(errors="replace"))
