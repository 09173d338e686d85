// SPDX-License-Identifier: GPL-2.0
/*
 * engine.bpf.c: a row of the tracker table that a test drives: its thread asks for what is to begin and to end by a
 * system call that fails, prctl(LP_IN or LP_OUT, key, unique or id, time). The answer is in `results`.
 */
#define TRACKER 99
#define TRACKER_KEY struct test_key
#define TRACKER_ENTRIES 64
#define TRACKER_KIND(entry) 0
#define TRACKER_KINDS 1
#include <linux/types.h>

struct test_key {
	__u8 bytes[64];
};

#include "tracker.bpf.h"

#define PRCTL 157
#define LP_IN 0x4c500001
#define LP_OUT 0x4c500002

struct pt_regs___args {
	unsigned long di, si, dx, r10;
} __attribute__((preserve_access_index));

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __s64);
} results SEC(".maps");

SEC("tp_btf/sys_enter")
int BPF_PROG(asked__tp_btf, struct pt_regs___args *regs, long nr)
{
	struct task_struct *task = bpf_get_current_task_btf();
	const struct tracker_knobs *k = get_knobs();
	struct entry made = { .tgid = task->tgid, .tid = task->pid };
	struct entry_key key = {};
	__u32 zero = 0, asked;
	__s64 *result = bpf_map_lookup_elem(&results, &zero);

	if (nr != PRCTL || !k || !result)
		return 0;
	asked = regs->di;
	if (asked != LP_IN && asked != LP_OUT)
		return 0;
	bpf_probe_read_user(&key.of, sizeof(key.of), (const void *)regs->si);
	if (asked == LP_IN) {
		made.start_ns = regs->r10;
		made.payload[0] = 7;
		*result = tracker_in(k, &key, regs->dx, &made);
	} else {
		*result = tracker_out(k, &key, false, regs->dx, regs->r10, task);
	}
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
