/* SPDX-License-Identifier: GPL-2.0 */
/*
 * ready.bpf.h: how long a task that was off the CPU could have run, and how long of it its quota kept it from that. Of
 * programs at `sched_switch` to it, and none other.
 */
#ifndef LATENCYPROBE_READY_BPF_H
#define LATENCYPROBE_READY_BPF_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "task.h"

#define CGROUP_LEVELS 8 /* root, kubepods, class, pod, container, and some of its own */

/* How long quotas have kept tasks of these groups off CPUs, all groups above the task added up. */
static __always_inline __u64 throttled_ns(const struct task_struct *task)
{
	const struct task_group *group = task->sched_task_group;
	__u64 ns = 0;

	for (int i = 0; group && i < CGROUP_LEVELS; i++) {
		ns += group->cfs_bandwidth.throttled_time;
		group = group->parent;
	}
	return ns;
}

static __always_inline __u64 smaller(__u64 a, __u64 b)
{
	return a < b ? a : b;
}

/* How much of `ready_ns` that is, at most; of a task that has changed its group meanwhile it may have shrunk. */
static __always_inline __u64 throttled_since(const struct task_struct *task, __u64 before_ns, __u64 ready_ns)
{
	__u64 now_ns = ready_ns ? throttled_ns(task) : 0;

	return now_ns > before_ns ? smaller(now_ns - before_ns, ready_ns) : 0;
}

/* By the clock of the CPU's queue, in which the kernel keeps the account of its tasks. */
static __always_inline __u64 queue_clock_ns(const struct task_struct *task)
{
	return bpf_core_field_exists(task->se.cfs_rq) ? task->se.cfs_rq->rq->clock : 0;
}

/*
 * Of the time that the task was away, what it could have run: by how much its account has grown since it left. That is the
 * kernel's own, which it closes right after this.
 */
static __always_inline __u64 ready_ns(const struct task_struct *task, __u64 run_delay_before)
{
	__u64 ns = task->sched_info.run_delay - run_delay_before, queued = task->sched_info.last_queued;
	__u64 now = queue_clock_ns(task);

	return queued && now > queued ? ns + now - queued : ns;
}

/* Whether a wait of `off_ns` was mostly for a CPU, and that mostly for its quota; signals/waits.py says the same. */
static __always_inline bool mostly_throttled(__u64 off_ns, __u64 ready_ns, __u64 throttled_ns)
{
	return ready_ns > off_ns - ready_ns && 2 * throttled_ns > ready_ns;
}

#endif
