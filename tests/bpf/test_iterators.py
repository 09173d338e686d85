"""An iterator over more than the kernel walks in one call: all of it is walked."""

import subprocess
from pathlib import Path

import numpy as np
import pytest

from latencyprobe_agent.kernel.libbpf import Object

pytestmark = pytest.mark.root

ENTRIES = 1_200_000  # of an array, which has them all from the beginning; the kernel gives way after a million
SOURCE = f"""
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct {{
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, {ENTRIES});
	__type(key, __u32);
	__type(value, __u64);
}} walked SEC(".maps");

struct {{
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
}} seen SEC(".maps");

SEC("iter/bpf_map_elem") int walk(unsigned long long *ctx)
{{
	__u32 first = 0;
	__u64 *count = bpf_map_lookup_elem(&seen, &first);

	if (count && ctx[3]) /* the entry; none at the end */
		*count += 1;
	return 0;
}}

char LICENSE[] SEC("license") = "GPL";
"""


def test_an_iterator_goes_on_where_the_kernel_gives_way(tmp_path: Path) -> None:
    machine = [f"-I{path}" for path in Path("/usr/include").glob("*-linux-gnu")]
    command = ["clang-19", "-g", "-O2", "-target", "bpf", *machine, "-x", "c", "-c", "-", "-o", tmp_path / "walk.o"]
    subprocess.run(command, input=SOURCE, text=True, check=True)
    opened = Object(tmp_path / "walk.o")
    try:
        opened.load()
        (walk,) = opened.programs()
        link = walk.attach(opened.map("walked"))
        link.read()
        link.close()
        seen = np.zeros(1, np.uint64)
        opened.map("seen").lookup(bytes(4), seen.view(np.uint8).data)
    finally:
        opened.close()
    assert int(seen[0]) == ENTRIES
