// SPDX-License-Identifier: GPL-2.0
/*
 * tracker_wakeup.bpf.c: how long woken tasks wait for a processor, from sched_waking to the sched_switch that brings
 * them; docs/design/tracker.md, "The other rows". One that was preempted is not woken: tracker_offcpu.bpf.c has it.
 */
#define TRACKER TRACKER_WAKEUP
#define TRACKER_KEY __u64     /* tid */
#define TRACKER_ENTRIES 65536 /* threads, 120 bytes each */
#define TRACKER_STAYS
#define TRACKER_KIND(entry) 0
#define TRACKER_KINDS 1
#include "tracker.bpf.h"

static __always_inline int on_waking(const struct task_struct *task)
{
	const struct tracker_knobs *k = get_knobs();
	struct entry_key key = { .of = task->pid };
	struct entry made = {};

	if (!k || !k->tracking_on || task->on_cpu || !watched(k, task))
		return 0;
	made.start_ns = bpf_ktime_get_boot_ns();
	made.tgid = task->tgid;
	made.tid = task->pid;
	return tracker_in(k, &key, true, &made) & 0;
}

/* `prev` has run: what is still open of it is a switch to it that no program saw, and no latency. */
static __always_inline void end_unseen(const struct task_struct *prev, __u32 state)
{
	struct entry_key key = { .of = prev->pid };
	struct entry seen;

	if (take(&key, &seen))
		tell(TOLD_REPLACED);
	if (state & TASK_DEAD)
		tracker_forget(&key);
}

static __always_inline int on_switch(const struct task_struct *prev, const struct task_struct *next, __u32 state)
{
	const struct tracker_knobs *k = get_knobs();
	struct entry_key key = { .of = next->pid };

	if (!k)
		return 0;
	end_unseen(prev, state);
	if (!k->tgid || next->tgid == k->tgid)
		tracker_out(k, &key, true, 0, bpf_ktime_get_boot_ns(), next);
	return 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(waking__tp_btf, struct task_struct *task)
{
	return on_waking(task);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(switched__tp_btf, bool preempt, struct task_struct *prev, struct task_struct *next, __u32 prev_state)
{
	return on_switch(prev, next, prev_state);
}

char LICENSE[] SEC("license") = "GPL";
