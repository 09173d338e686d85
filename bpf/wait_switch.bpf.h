/* SPDX-License-Identifier: GPL-2.0 */
/*
 * wait_switch.bpf.h: watched threads leave a CPU and come back to one, docs/design/evidence.md, "Waits". The scheduler
 * holds its lock here.
 */
#ifndef LATENCYPROBE_WAIT_SWITCH_BPF_H
#define LATENCYPROBE_WAIT_SWITCH_BPF_H

#include <bpf/bpf_helpers.h>
#include "events.h"
#include "task.h"
#include "wait_account.bpf.h"
#include "wait_stack.bpf.h"
#include "wait_thread.bpf.h"

/* The system call in which a task is, by the registers with which it entered the kernel; or enum wait_nr. */
static __always_inline __s32 call_of(struct task_struct *task)
{
	const struct pt_regs *regs = (void *)bpf_task_pt_regs(task);

	return is_compat(task) ? WAIT_NR_FOREIGN : (__s32)SYSCALL_NR(regs);
}

static __always_inline bool is_idle(__s32 nr, __u32 state)
{
	__u32 key = nr, *kind;

	if (state & TASK_UNINTERRUPTIBLE)
		return false; /* for a disk or the like, not for work */
	if (nr == WAIT_NR_FAULT)
		return false;
	if (nr < 0)
		return true;
	kind = bpf_map_lookup_elem(&call_kinds, &key);
	return kind && *kind != CALL_WORK;
}

/* `state` 0: it could run on. */
static __always_inline void leave(void *ctx, struct task_struct *task, __u32 state)
{
	struct thread *t = find_thread(task);
	struct process *p = NULL;
	__u32 tgid = task->tgid;
	__s32 nr = WAIT_NR_NONE;

	if (!t) {
		if (!storage_may_be_made_anywhere() || !bpf_map_lookup_elem(&processes, &tgid))
			return;
		t = bpf_task_storage_get(&threads, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
		if (!t) {
			count_lost(LOST_STATE);
			return;
		}
	}
	if (state) {
		nr = call_of(task);
		if (state & TASK_STOPPED_OR_TRACED || task->jobctl & JOBCTL_TRAP_FREEZE)
			nr = WAIT_NR_STOPPED;
	}
	if (t->out_ns)
		catch_up(task, t);
	if (!t->serving) {
		if (state && is_idle(nr, state))
			return;
		p = bpf_map_lookup_elem(&processes, &tgid);
		if (!p)
			return;
		t->out_begun = p->begun;
		t->out_open = p->open;
		t->target_set = p->target_set;
	}
	t->out_ns = now_ns();
	t->out_nr = nr;
	t->out_state = state;
	t->out_run_delay = task->sched_info.run_delay;
	t->out_throttled = throttled_ns(task);
	t->clock_ns = t->out_ns - queue_clock_ns(task);
	t->waker.kind = WAKER_UNKNOWN;
	t->woken = t->walks = t->user_frames = t->waker_frames = 0;
	if (state && t->user_stacks && t->serving && !t->shared)
		take_own_user_stack(ctx, task, t);
}

static __always_inline void come_back(struct task_struct *task)
{
	struct thread *t = find_thread(task);

	if (!t)
		return;
	t->switches++;
	if (t->out_ns)
		end_wait(task, t, now_ns(), ready_ns(task, t->out_run_delay), true);
}

static __always_inline int on_switch(void *ctx, bool preempted, struct task_struct *prev, struct task_struct *next,
				     __u32 state)
{
	if (!preempted && state & TASK_DEAD)
		leave_for_good(prev);
	else if (maybe_watched(prev))
		leave(ctx, prev, preempted ? 0 : state);
	if (maybe_watched(next))
		come_back(next);
	return 0;
}

#endif
