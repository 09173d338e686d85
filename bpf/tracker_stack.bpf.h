/* SPDX-License-Identifier: GPL-2.0 */
/*
 * tracker_stack.bpf.h: stacks of what goes on or has just ended, each a record in a ring of their own, and never by
 * bpf_get_stackid(), which loses or mixes them. Another task's kernel stack shows where it is blocked, as long as it does
 * not run; its user stack is only to be had by itself.
 */
#ifndef LATENCYPROBE_TRACKER_STACK_BPF_H
#define LATENCYPROBE_TRACKER_STACK_BPF_H

#include "tracker.bpf.h"
#include "user_stack.bpf.h"

/* 4 MiB: 3,900 stacks. A tool that asks for none has a ring of a page. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 22);
} tracked_stacks SEC(".maps");

/* Room for a stack, NULL if there is none; which is counted. */
static __always_inline struct tracked_stack *begin_stack(const struct tracker_knobs *k, const struct entry *e,
							 __u64 now_ns, __u8 kind)
{
	struct tracked_stack *s;

	if (!within_limit(k->stacks_per_second, true)) {
		tell(TOLD_STACKS_LIMITED);
		return NULL;
	}
	s = bpf_ringbuf_reserve(&tracked_stacks, sizeof(*s), 0);
	if (!s) {
		tell(TOLD_STACKS_LOST);
		return NULL;
	}
	s->start_ns = e->start_ns;
	s->elapsed_ns = now_ns - e->start_ns;
	s->tgid = e->tgid;
	s->tid = e->tid;
	s->kind = kind;
	s->flags = 0;
	s->_pad = 0;
	return s;
}

/* `bytes`: what the helper has returned. */
static __noinline int end_stack(const struct tracker_knobs *k, struct tracked_stack *s, long bytes)
{
	if (bytes <= 0) {
		bpf_ringbuf_discard(s, BPF_RB_NO_WAKEUP);
		tell(TOLD_STACKS_LOST);
		return 0;
	}
	s->frames = bytes / sizeof(s->address[0]);
	if (s->frames == LP_TRACKED_FRAMES)
		s->flags |= WALK_TRUNCATED;
	bpf_ringbuf_submit(s, wakeup_flags(&tracked_stacks, k->wakeup_bytes));
	return 0;
}

/* Where a task was blocked that is about to run again. */
static __always_inline void take_blocked_stack(const struct tracker_knobs *k, struct entry *e, __u64 now_ns,
					       struct task_struct *next)
{
	struct tracked_stack *s = begin_stack(k, e, now_ns, STACK_KERNEL);

	e->stacks++;
	if (s)
		end_stack(k, s, bpf_get_task_stack(next, s->address, sizeof(s->address), 0));
}

/* The current task's kernel stack, our own frames on top of it. */
static __always_inline void take_own_stack(void *ctx, const struct tracker_knobs *k, struct entry *e, __u64 now_ns)
{
	struct tracked_stack *s = begin_stack(k, e, now_ns, STACK_WAKER);

	e->stacks++;
	if (s)
		end_stack(k, s, bpf_get_stack(ctx, s->address, sizeof(s->address), 0));
}

/* The user stack of the current task, at the end of its call. */
static __always_inline void take_user_stack(void *ctx, const struct tracker_knobs *k, const struct entry *e,
					    __u64 now_ns, const struct pt_regs *regs)
{
	struct tracked_stack *s = begin_stack(k, e, now_ns, STACK_USER);
	long bytes;

	if (!s)
		return;
	bytes = bpf_get_stack(ctx, s->address, sizeof(s->address), BPF_F_USER_STACK);
	if (leads_to_the_end(FRAME_POINTER(regs), LP_TRACKED_FRAMES))
		s->flags |= WALK_COMPLETE;
	end_stack(k, s, bytes);
}

#endif
