/* SPDX-License-Identifier: GPL-2.0 */
/*
 * tracker_calls.bpf.h: system calls as something that begins and ends, docs/design/tracker.md, "System calls"; for objects
 * that follow them, which define what tracker.bpf.h asks for, except for the kinds. While one goes on, the kernel's stack
 * of its blocked thread is taken each time that it gets a processor again.
 */
#ifndef LATENCYPROBE_TRACKER_CALLS_BPF_H
#define LATENCYPROBE_TRACKER_CALLS_BPF_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "events.h"

#define TRACKER_KIND(entry) call_kind((entry)->payload[0], (entry)->payload[1])
#define TRACKER_KINDS (2 * LP_SYSCALL_WORDS * 64)

/* Its number; behind all of those, that of the 32-bit table, where it means something else. */
static __always_inline __u32 call_kind(__u64 nr, __u64 compat)
{
	if (nr >= LP_SYSCALL_WORDS * 64)
		return TRACKER_KINDS; /* which has no statistics */
	return compat ? LP_SYSCALL_WORDS * 64 + nr : nr;
}

#include "tracker.bpf.h"
#include "tracker_stack.bpf.h"

/* A call of the 32-bit table is never left out by a number that means something else there. */
static __always_inline bool is_left_out(const struct tracker_knobs *k, __u64 nr, bool compat)
{
	return !compat && nr < LP_SYSCALL_WORDS * 64 && k->left_out[nr / 64] >> (nr % 64) & 1;
}

/* As tracker_end(); one that is left out, but followed all the same (TRACKER_KEEPS), is never reported. */
static __noinline bool call_end(const struct tracker_knobs *k, const struct entry *e, __u64 now_ns, struct tracked *r)
{
	if (!tracker_end(k, e, now_ns, r))
		return false;
	if (is_left_out(k, e->payload[0], e->payload[1]))
		r->flag = TRACKED_LET_GO;
	return r->flag == TRACKED_NORMAL;
}

/* The entry of a call that a signal had interrupted, and which did not go on. */
static __noinline int end_interrupted(const struct tracker_knobs *k, struct entry *e, const struct task_struct *task)
{
	struct tracked r = { .ret = -EINTR };

	if (call_end(k, e, e->interrupted_ns, &r))
		describe(&r, task);
	if (r.flag == TRACKED_NORMAL || r.stacks)
		put(k, &r);
	e->start_ns = 0;
	return 0;
}

static __always_inline int on_enter(__u64 nr)
{
	struct task_struct *task = bpf_get_current_task_btf();
	const struct tracker_knobs *k = get_knobs();
	struct entry_key key = { .of = (__u32)bpf_get_current_pid_tgid() };
	struct entry *open, made = {};
	bool compat;

	if (!k || !k->tracking_on || !watched(k, task))
		return 0;
	compat = is_compat(task);
	open = bpf_map_lookup_elem(&entries, &key);
	if (open && open->start_ns && open->interrupted_ns) {
		if (nr == (compat ? 0 : SYSCALL_RESTART)) {
			open->interrupted_ns = 0;
			return 0;
		}
		end_interrupted(k, open, task);
	}
	/* a call that never returns is none */
	if (!compat && (nr == SYSCALL_EXIT || nr == SYSCALL_EXIT_GROUP))
		return 0;
#ifndef TRACKER_KEEPS
	if (is_left_out(k, nr, compat))
		return 0;
#endif
	made.start_ns = bpf_ktime_get_boot_ns();
	made.payload[0] = nr;
	made.payload[1] = compat;
	made.tgid = task->tgid;
	made.tid = task->pid;
	return (open ? begin_again(k, open, &made) : tracker_in(k, &key, true, &made)) & 0;
}

static __always_inline int on_exit(void *ctx, const struct pt_regs *regs, long ret)
{
	struct entry_key key = { .of = (__u32)bpf_get_current_pid_tgid() };
	const struct tracker_knobs *k = get_knobs();
	struct tracked r = { .ret = ret };
	struct entry *open, ended;
	__u64 now_ns;

	if (!k)
		return 0;
	open = bpf_map_lookup_elem(&entries, &key);
	if (!open || !open->start_ns)
		return 0;
	now_ns = bpf_ktime_get_boot_ns();
	if (ret == -ERESTART_RESTARTBLOCK) {
		open->interrupted_ns = now_ns;
		return 0;
	}
	if (!take_found(&key, open, &ended))
		return 0;
	if (call_end(k, &ended, now_ns, &r)) {
		if (k->stacks & STACKS_USER)
			take_user_stack(ctx, k, &ended, now_ns, regs);
		describe(&r, bpf_get_current_task_btf());
		put(k, &r);
	} else if (r.stacks) {
		put(k, &r);
	}
	return 0;
}

/* `next` does not run yet: its stack is where it was blocked. */
static __always_inline int on_switch(struct task_struct *next)
{
	const struct tracker_knobs *k = get_knobs();
	struct entry_key key = { .of = next->pid };
	struct entry *open;
	__u64 now_ns;

	if (!k || !(k->stacks & STACKS_KERNEL))
		return 0;
	open = bpf_map_lookup_elem(&entries, &key);
	if (!open || !open->start_ns || open->interrupted_ns || is_left_out(k, open->payload[0], open->payload[1]))
		return 0;
	now_ns = bpf_ktime_get_boot_ns();
	if (now_ns - open->start_ns > k->threshold_ns / 2)
		take_blocked_stack(k, open, now_ns, next);
	return 0;
}

SEC("tp_btf/sys_enter")
int BPF_PROG(enter__tp_btf, struct pt_regs *regs, long nr)
{
	return on_enter(nr);
}

SEC("tp_btf/sys_exit")
int BPF_PROG(exit__tp_btf, struct pt_regs *regs, long ret)
{
	return on_exit(ctx, regs, ret);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(blocked__tp_btf, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	return on_switch(next);
}

/* Inside of a call, if it was killed. */
SEC("tp_btf/sched_process_exit")
int BPF_PROG(ended__tp_btf, struct task_struct *task)
{
	struct entry_key key = { .of = task->pid };

	return tracker_forget(&key);
}

#endif
