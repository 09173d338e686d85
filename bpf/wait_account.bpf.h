/* SPDX-License-Identifier: GPL-2.0 */
/*
 * wait_account.bpf.h: one wait of a thread, as it ends: added to the account of the request that the thread serves, and
 * told if it was long.
 */
#ifndef LATENCYPROBE_WAIT_ACCOUNT_BPF_H
#define LATENCYPROBE_WAIT_ACCOUNT_BPF_H

#include <bpf/bpf_helpers.h>
#include "events.h"
#include "ready.bpf.h"
#include "wait_record.bpf.h"
#include "wait_stack.bpf.h"
#include "wait_thread.bpf.h"

static __always_inline void count_blocked(struct thread *t, __s32 nr, __u64 ns)
{
	for (int i = 0; i < LP_WAIT_CALLS; i++) {
		struct blocked *b = &t->blocked[i];

		if (b->count && b->nr != nr)
			continue;
		b->nr = nr;
		b->count++;
		b->ns += ns;
		return;
	}
	t->other_ns += ns;
}

static __always_inline bool is_lock(__s32 nr)
{
	return nr == SYSCALL_FUTEX || nr == SYSCALL_FUTEX_WAIT || nr == SYSCALL_FUTEX_WAITV;
}

/* Remember who ended the longest wait for a futex. */
static __always_inline void note_lock(struct thread *t, __u64 blocked_ns)
{
	if (!t->waker.kind || !is_lock(t->out_nr) || blocked_ns <= t->lock_ns)
		return;
	t->lock_ns = blocked_ns;
	t->lock_waker = t->waker;
}

/* One wait. `seen`: it ends now, so that the thread's stack is still that of the wait. */
struct ended {
	__u64 now_ns;
	__u64 ready_ns;
	__u64 throttled_ns;
	__u64 preempted_ns;
	__u64 blocked_ns;
	bool seen;
};

/* Whose wait it was; false: nobody's that asks for it. */
static __always_inline bool waits_for(struct task_struct *task, struct thread *t, struct flow_header *flow,
				      __u8 *waiter)
{
	const struct config *cfg = get_config();
	__u32 tgid = task->tgid;
	struct process *p = bpf_map_lookup_elem(&processes, &tgid);
	__u64 requests;

	if (!p || !cfg)
		return false;
	flow->target_set = p->target_set;
	flow->cgroup_id = p->cgroup_id;
	if (t->serving && !t->shared) {
		*waiter = WAITER_THREAD;
		flow->sock_cookie = t->cookie;
		return true;
	}
	requests = t->serving ? p->open : t->out_open + (p->begun - t->out_begun);
	if (!requests && p->generation != cfg->generation)
		return false; /* the plan may ask for the process no more; for an open request it did */
	*waiter = !requests ? WAITER_NOBODY : requests == 1 ? WAITER_PROCESS : WAITER_AMBIGUOUS;
	if (*waiter == WAITER_PROCESS)
		flow->sock_cookie = p->cookie;
	return true;
}

static __noinline int tell_wait(struct task_struct *task, struct thread *t, struct ended *e)
{
	struct flow_header flow = { .role = ROLE_SERVER };
	struct evidence_counts *n;
	const struct target_set *set;
	struct wait *w;
	__u8 waiter = 0;
	long bytes;

	if (t->serving && t->open)
		settle(t); /* its client may be gone */
	if (t->serving && !t->open) {
		t->serving = t->shared = 0;
		return 0;
	}
	if (!waits_for(task, t, &flow, &waiter))
		return 0;
	flow.boot_ns = e->now_ns;
	flow.owner_tgid = task->tgid;
	flow.owner_tid = task->pid;
	bpf_probe_read_kernel_str(flow.owner_comm, sizeof(flow.owner_comm), task->comm);
	n = evidence_counts_of(&flow);
	if (n && waiter < WAITER_COUNT)
		add(&n->waits[waiter], 1);
	set = bpf_map_lookup_elem(&target_sets, &flow.target_set);
	w = set ? reserve(&flow, WAIT_ONE, n) : NULL;
	if (!w)
		return 0;
	w->start_ns = t->out_ns;
	w->ready_ns = e->ready_ns;
	w->throttled_ns = e->throttled_ns;
	w->preempted_ns = e->preempted_ns;
	w->blocked_ns = e->blocked_ns;
	w->call_ns[0] = e->blocked_ns;
	w->call_nr[0] = t->out_nr;
	w->call_count[0] = 1;
	w->state = t->out_state;
	w->waiter = waiter;
	w->flags = (t->out_state ? 0 : WAIT_PREEMPTED) | (waiter == WAITER_THREAD ? WAIT_SERVING : 0);
	if (t->waker.kind)
		w->waker = t->waker;
	if (t->user_frames || t->waker_frames)
		copy_user_stacks(task, t, w);
	if (set->wait_stacks & STACKS_KERNEL && e->seen) {
		bytes = bpf_get_task_stack(task, w->stack, sizeof(w->stack), 0);
		w->frames = bytes > 0 ? bytes / 8 : 0;
		if (w->frames == LP_WAIT_FRAMES)
			w->flags |= WAIT_TRUNCATED;
	}
	submit(w);
	return 0;
}

/* The task is back on a CPU, or about to be, since `now`. */
static __noinline int end_wait(struct task_struct *task, struct thread *t, __u64 now, __u64 ready, bool seen)
{
	__u64 off = now - t->out_ns;
	struct target_set *set;
	struct ended e = { .now_ns = now, .seen = seen };
	__u32 index;

	ready = t->out_state ? smaller(ready, off) : off;
	e.ready_ns = ready;
	e.throttled_ns = throttled_since(task, t->out_throttled, ready);
	e.preempted_ns = t->out_state ? 0 : ready - e.throttled_ns;
	e.blocked_ns = off - ready;
	if (t->serving) {
		t->off_ns += off;
		t->ready_ns += ready;
		t->throttled_ns += e.throttled_ns;
		t->preempted_ns += e.preempted_ns;
		if (t->out_state) {
			count_blocked(t, t->out_nr, e.blocked_ns);
			note_lock(t, e.blocked_ns);
		}
	}
	index = t->target_set;
	set = bpf_map_lookup_elem(&target_sets, &index);
	if (set && ((set->evidence & EVIDENCE_SYSCALLS && e.blocked_ns > set->slow_call_ns) ||
		    (set->evidence & EVIDENCE_OFFCPU && ready > set->slow_offcpu_ns)))
		tell_wait(task, t, &e);
	t->out_ns = 0;
	return 0;
}

/*
 * The task runs, and may have come back without a firing: where the kernel does not trace the task that it followed. The
 * kernel's own account has when.
 */
static __always_inline void catch_up(struct task_struct *task, struct thread *t)
{
	__u64 back = task->sched_info.last_arrival + t->clock_ns;

	if (!t->out_ns)
		return;
	t->switches++;
	if (back < t->out_ns)
		back = t->out_ns;
	end_wait(task, t, smaller(back, now_ns()), task->sched_info.run_delay - t->out_run_delay, false);
}

#endif
