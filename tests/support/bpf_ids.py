"""Which BPF objects there are in the kernel, of whomever, by their ids."""

import ctypes as c


def alive(kind: str) -> set[int]:
    """Ids of all objects of a kind: `prog`, `map` or `link`. None is opened for it, as bpftool does with each:
    docs/design/kernel.md, "Maps and rings"."""
    following = getattr(c.CDLL("libbpf.so.1"), f"bpf_{kind}_get_next_id")
    found, number = set(), c.c_uint32()
    while not following(number, c.byref(number)):
        found.add(number.value)
    return found
