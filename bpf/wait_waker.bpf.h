/* SPDX-License-Identifier: GPL-2.0 */
/*
 * wait_waker.bpf.h: who ends a wait, docs/design/evidence.md, "Waits". The waker is the current task, unless an interrupt
 * has come upon it. Whoever wakes a task holds that task's lock, and it is not running: its state may be written here.
 */
#ifndef LATENCYPROBE_WAIT_WAKER_BPF_H
#define LATENCYPROBE_WAIT_WAKER_BPF_H

#include <bpf/bpf_helpers.h>
#include "events.h"
#include "task.h"
#include "wait_stack.bpf.h"
#include "wait_thread.bpf.h"

#ifdef __TARGET_ARCH_arm64
/* include/linux/preempt.h: a softirq is served; a hardirq or an NMI, whose places have moved within these bits */
#define SERVING 0x7fff0100

static __always_inline bool by_interrupt(void *ctx, const struct task_struct *current, struct thread *t)
{
	return current->thread_info.preempt_count & SERVING;
}
#else
/*
 * Whether an interrupt has come upon the current task, which then has nothing to do with what happens. Interrupts have a
 * stack of their own, unless they come while the task is in user mode: then it is in no call. `ctx` lies on the stack on
 * which we run. Where the kernel counts interrupts, some kernels do not show. Kept in `t` for a moment, for a program may
 * not compute with these pointers.
 */
static __always_inline bool by_interrupt(void *ctx, const struct task_struct *current, struct thread *t)
{
	const struct pt_regs *regs = (void *)bpf_task_pt_regs((struct task_struct *)current);
	volatile __u64 *at = &t->at[0], *top = &t->at[1];
	__u64 bottom = (__u64)current->stack;
	bool on_its_stack;

	*at = (__u64)ctx;
	*top = (__u64)regs; /* at the top of the task's stack */
	on_its_stack = *at >= bottom && *at < *top;
	*at = *top = 0;
	return !on_its_stack || (!(current->flags & PF_KTHREAD) && (__s64)SYSCALL_NR(regs) < 0);
}
#endif

static __always_inline enum waker_kind kind_of_waker(const struct task_struct *by, const struct task_struct *task)
{
	if (by->flags & PF_KTHREAD)
		return WAKER_KERNEL;
	if (by->tgid == task->tgid)
		return WAKER_THREAD;
	return cgroup_of(by) == cgroup_of(task) ? WAKER_PROCESS : WAKER_OUTSIDE;
}

static __noinline int note_waker(void *ctx, struct task_struct *task, struct thread *t)
{
	struct task_struct *by = bpf_get_current_task_btf();

	__builtin_memset(&t->waker, 0, sizeof(t->waker));
	if (!by->pid || by_interrupt(ctx, by, t)) { /* an idle CPU is no thread either */
		t->waker.kind = WAKER_INTERRUPT;
		return 0;
	}
	t->waker.kind = kind_of_waker(by, task);
	if (t->waker.kind == WAKER_OUTSIDE)
		return 0;
	t->waker.tgid = by->tgid;
	t->waker.tid = by->pid;
	bpf_probe_read_kernel(t->waker.comm, sizeof(t->waker.comm), by->comm);
	if (t->user_stacks && t->waker.kind != WAKER_KERNEL)
		take_wakers_user_stack(ctx, task, t);
	return 0;
}

/* sched_waking. Of one that still runs there is no wait; of several wake-ups the first one ends it. */
static __always_inline int on_waking(void *ctx, struct task_struct *task)
{
	struct target_set *set;
	struct thread *t;
	__u32 index;

	if (!maybe_watched(task) || task->on_cpu)
		return 0;
	t = find_thread(task);
	if (!t || !t->out_ns || !t->out_state || t->woken)
		return 0;
	t->woken = 1;
	index = t->target_set;
	set = bpf_map_lookup_elem(&target_sets, &index);
	if (set && set->evidence & EVIDENCE_SYSCALLS && now_ns() - t->out_ns > set->slow_call_ns)
		note_waker(ctx, task, t);
	return 0;
}

#endif
