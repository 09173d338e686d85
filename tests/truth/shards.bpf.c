// SPDX-License-Identifier: GPL-2.0
/* shards.bpf.c: adds to the counts of one key for a thread that asks for it, by a system call that fails: prctl(LP_ADD). */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "kernel.h"
#include "evidence_counts.bpf.h"

#define PRCTL 157
#define LP_ADD 0x4c500003
#define TIMES 10000

struct pt_regs___args {
	unsigned long di;
} __attribute__((preserve_access_index));

/* Of every signal; nothing comes. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} records SEC(".maps");

SEC("tp_btf/sys_enter")
int BPF_PROG(asked__tp_btf, struct pt_regs___args *regs, long nr)
{
	struct flow_header flow = { .target_set = 1, .cgroup_id = 7, .role = ROLE_SERVER };
	struct evidence_counts *n;

	if (nr != PRCTL || (__u32)regs->di != LP_ADD)
		return 0;
	n = evidence_counts_of(&flow);
	for (int i = 0; n && i < TIMES; i++)
		add(&n->segs_sent, 1);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
