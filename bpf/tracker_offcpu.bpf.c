// SPDX-License-Identifier: GPL-2.0
/*
 * tracker_offcpu.bpf.c: tasks off their processor, from the sched_switch that takes one off to the one that brings it
 * back; docs/design/tracker.md, "Off the processor". With STACKS_WAKER a second record says who woke it, and from where.
 */
#define TRACKER TRACKER_OFFCPU
#define TRACKER_KEY __u64     /* tid */
#define TRACKER_ENTRIES 65536 /* threads, 136 bytes each */
#define TRACKER_STAYS
#define TRACKER_MARKS /* of the task as it left: its run_delay, and how long quotas had kept it off by then */
#define TRACKER_KIND(entry) ((__u32)(entry)->payload[0])
#define TRACKER_KINDS OFFCPU_COUNT
#include "ready.bpf.h"
#include "tracker.bpf.h"
#include "tracker_stack.bpf.h"

static __always_inline __u32 reason_of(bool preempt, __u32 state)
{
	if (preempt || !state)
		return OFFCPU_PREEMPTED;
	if (state & TASK_INTERRUPTIBLE)
		return OFFCPU_INTERRUPTIBLE;
	return state & TASK_UNINTERRUPTIBLE && !(state & TASK_NOLOAD) ? OFFCPU_DISK : OFFCPU_OTHER;
}

/* Only now it is known how long it could have run, and why it did not. */
static __always_inline void judge(struct entry *out, const struct task_struct *next, __u64 now_ns)
{
	__u64 off = now_ns - out->start_ns;
	__u64 ready = out->payload[0] == OFFCPU_PREEMPTED ? off : smaller(ready_ns(next, out->marks[0]), off);

	if (mostly_throttled(off, ready, throttled_since(next, out->marks[1], ready)))
		out->payload[0] = OFFCPU_THROTTLED;
}

static __always_inline void come_back(const struct tracker_knobs *k, struct task_struct *next, __u64 now_ns)
{
	struct entry_key key = { .of = next->pid };
	struct entry *out;

	if (k->tgid && next->tgid != k->tgid)
		return;
	out = bpf_map_lookup_elem(&entries, &key);
	if (!out || !out->start_ns)
		return;
	judge(out, next, now_ns);
	if (k->stacks & STACKS_KERNEL && now_ns - out->start_ns > k->threshold_ns)
		take_blocked_stack(k, out, now_ns, next);
	tracker_out(k, &key, true, 0, now_ns, next);
}

static __always_inline void leave(const struct tracker_knobs *k, const struct task_struct *prev, bool preempt,
				  __u32 state, __u64 now_ns)
{
	struct entry_key key = { .of = prev->pid };
	struct entry made = { .start_ns = now_ns };

	if (state & TASK_DEAD) {
		tracker_forget(&key);
		return;
	}
	if (!watched(k, prev))
		return;
	made.payload[0] = reason_of(preempt, state);
	made.payload[1] = state;
	made.tgid = prev->tgid;
	made.tid = prev->pid;
	made.marks[0] = prev->sched_info.run_delay;
	made.marks[1] = throttled_ns(prev);
	tracker_in(k, &key, true, &made);
}

static __always_inline int on_switch(bool preempt, struct task_struct *prev, struct task_struct *next, __u32 state)
{
	const struct tracker_knobs *k = get_knobs();
	__u64 now_ns;

	if (!k || !k->tracking_on)
		return 0;
	now_ns = bpf_ktime_get_boot_ns();
	come_back(k, next, now_ns);
	leave(k, prev, preempt, state, now_ns);
	return 0;
}

static __always_inline int on_waking(void *ctx, const struct task_struct *task)
{
	const struct tracker_knobs *k = get_knobs();
	struct entry_key key = { .of = task->pid };
	struct tracked r = { .flag = TRACKED_WAKER };
	struct entry *out;
	__u64 now_ns;

	if (!k || task->on_cpu || (k->tgid && task->tgid != k->tgid))
		return 0;
	out = bpf_map_lookup_elem(&entries, &key);
	if (!out || !out->start_ns)
		return 0;
	now_ns = bpf_ktime_get_boot_ns();
	if (now_ns - out->start_ns <= k->threshold_ns)
		return 0;
	r.start_ns = out->start_ns;
	r.duration_ns = now_ns - out->start_ns;
	r.payload[0] = out->tid;
	describe(&r, bpf_get_current_task_btf());
	if (put(k, &r))
		take_own_stack(ctx, k, out, now_ns);
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(switched__tp_btf, bool preempt, struct task_struct *prev, struct task_struct *next, __u32 prev_state)
{
	return on_switch(preempt, prev, next, prev_state);
}

SEC("tp_btf/sched_waking")
int BPF_PROG(waking__tp_btf, struct task_struct *task)
{
	return on_waking(ctx, task);
}

char LICENSE[] SEC("license") = "GPL";
