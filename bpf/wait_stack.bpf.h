/* SPDX-License-Identifier: GPL-2.0 */
/*
 * wait_stack.bpf.h: user stacks of a wait: of the thread as it leaves the CPU, and of who wakes it. Both are to be had of
 * the current task alone, before anybody knows whether the wait will be long; so their room is the thread's own, and made
 * when it reads a request for a target that asks for them. A page that is not there ends the walk.
 */
#ifndef LATENCYPROBE_WAIT_STACK_BPF_H
#define LATENCYPROBE_WAIT_STACK_BPF_H

#include <bpf/bpf_helpers.h>
#include "events.h"
#include "user_stack.bpf.h"
#include "wait_thread.bpf.h"

/* The thread reads a request: make room if this one's target asks for it. */
static __always_inline void prepare_user_stacks(struct task_struct *task, struct thread *t,
						const struct target_set *set)
{
	t->user_stacks = set->wait_stacks & STACKS_USER &&
			 bpf_task_storage_get(&user_stacks, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
}

/* The current task's user stack. Returns the number of frames; `walks` gains `complete` if they are all. */
static __noinline int take_user_stack(void *ctx, __u64 *address, __u8 *walks, __u8 complete)
{
	const struct pt_regs *regs = (void *)bpf_task_pt_regs(bpf_get_current_task_btf());
	long bytes = bpf_get_stack(ctx, address, LP_USER_FRAMES * sizeof(*address), BPF_F_USER_STACK);

	if (bytes <= 0)
		return 0;
	if (leads_to_the_end(FRAME_POINTER(regs), LP_USER_FRAMES))
		*walks |= complete;
	return bytes / sizeof(*address);
}

/* It leaves the CPU, and is the current task until it has. */
static __always_inline void take_own_user_stack(void *ctx, struct task_struct *task, struct thread *t)
{
	struct user_stacks *s;

	if ((__u32)bpf_get_current_pid_tgid() != task->pid)
		return;
	s = bpf_task_storage_get(&user_stacks, task, 0, 0);
	if (s)
		t->user_frames = take_user_stack(ctx, s->own, &t->walks, WAIT_USER_COMPLETE);
}

/* The current task wakes `task`. */
static __always_inline void take_wakers_user_stack(void *ctx, struct task_struct *task, struct thread *t)
{
	struct user_stacks *s = bpf_task_storage_get(&user_stacks, task, 0, 0);

	if (s)
		t->waker_frames = take_user_stack(ctx, s->waker, &t->walks, WAIT_WAKER_COMPLETE);
}

/* Into the record of a wait. */
static __noinline int copy_user_stacks(struct task_struct *task, const struct thread *t, struct wait *w)
{
	struct user_stacks *s = bpf_task_storage_get(&user_stacks, task, 0, 0);

	if (!s)
		return 0;
	bpf_probe_read_kernel(w->user_stack, sizeof(w->user_stack), s->own);
	bpf_probe_read_kernel(w->waker_stack, sizeof(w->waker_stack), s->waker);
	w->user_frames = t->user_frames;
	w->waker_frames = t->waker_frames;
	w->flags |= t->walks;
	return 0;
}

#endif
