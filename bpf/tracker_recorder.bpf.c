// SPDX-License-Identifier: GPL-2.0
/*
 * tracker_recorder.bpf.c: the flight recorder, docs/design/tracker.md. Keeps per CPU the newest system calls, whatever
 * their duration, switches and wake-ups; a call that takes longer than the threshold has a record, as of any tracker.
 */
#define TRACKER TRACKER_RECORDER
#define TRACKER_KEY __u64     /* tid */
#define TRACKER_ENTRIES 65536 /* threads that make calls at all, 120 bytes each */
#define TRACKER_STAYS
#define TRACKER_KEEPS
#include "tracker_calls.bpf.h"

#define NEWEST struct recorded
#define NEWEST_VALUE struct recorded_value
#include "newest.bpf.h"

/* By the current task, at the end of its call. */
static __noinline int keep_ended(const struct tracker_knobs *k, const struct tracked *r)
{
	struct recorded kept = { .kind = RECORDED_CALL };

	if (r->duration_ns <= k->keep_above_ns)
		return 0;
	kept.time_ns = r->start_ns + r->duration_ns;
	kept.duration_ns = r->duration_ns;
	kept.ret = r->ret;
	kept.tgid = r->tgid;
	kept.tid = r->tid;
	kept.nr = r->payload[0];
	kept.flags = r->payload[1] ? RECORDED_COMPAT : 0;
	bpf_get_current_comm(kept.comm, sizeof(kept.comm));
	return keep_newest(&kept) & 0;
}

static __always_inline void name_both(struct recorded *kept, const struct task_struct *task,
				      const struct task_struct *other)
{
	kept->time_ns = bpf_ktime_get_boot_ns();
	kept->tgid = task->tgid;
	kept->tid = task->pid;
	kept->other_tgid = other->tgid;
	kept->other_tid = other->pid;
	bpf_probe_read_kernel(kept->comm, sizeof(kept->comm), task->comm);
	bpf_probe_read_kernel(kept->other_comm, sizeof(kept->other_comm), other->comm);
}

static __always_inline int keep_switch(bool preempt, const struct task_struct *prev, const struct task_struct *next,
				       __u32 state)
{
	struct recorded kept = { .kind = RECORDED_SWITCH, .ret = state };
	const struct tracker_knobs *k = get_knobs();

	if (!k || !k->tracking_on)
		return 0;
	kept.flags = (watched(k, prev) ? RECORDED_FOLLOWED : 0) | (watched(k, next) ? RECORDED_OTHER_FOLLOWED : 0);
	if (!kept.flags)
		return 0;
	if (preempt || !state)
		kept.flags |= RECORDED_PREEMPTED;
	name_both(&kept, prev, next);
	return keep_newest(&kept) & 0;
}

static __always_inline int keep_wakeup(const struct task_struct *task)
{
	struct recorded kept = { .kind = RECORDED_WAKEUP };
	const struct tracker_knobs *k = get_knobs();

	if (!k || !k->tracking_on || !watched(k, task))
		return 0;
	name_both(&kept, bpf_get_current_task_btf(), task);
	return keep_newest(&kept) & 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(switched__tp_btf, bool preempt, struct task_struct *prev, struct task_struct *next, __u32 prev_state)
{
	return keep_switch(preempt, prev, next, prev_state);
}

SEC("tp_btf/sched_waking")
int BPF_PROG(waking__tp_btf, struct task_struct *task)
{
	return keep_wakeup(task);
}

char LICENSE[] SEC("license") = "GPL";
