/* SPDX-License-Identifier: GPL-2.0 */
/* tracker_knobs.bpf.h: whom a tracker follows, how much it may tell, and what it has to tell beside its records. */
#ifndef LATENCYPROBE_TRACKER_KNOBS_BPF_H
#define LATENCYPROBE_TRACKER_KNOBS_BPF_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "events.h"
#include "lost.bpf.h"
#include "task.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tracker_knobs);
} knobs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, TOLD_COUNT);
	__type(key, __u32);
	__type(value, __u64);
} told SEC(".maps");

/* What came in this second. Where processors meet in it, a limit lets a few more through. */
struct window {
	__u64 second;
	__u64 records;
	__u64 stacks;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct window);
} window SEC(".maps");

static __always_inline void tell(__u32 what)
{
	__u64 *n = bpf_map_lookup_elem(&told, &what);

	if (n)
		add(n, 1);
}

static __always_inline const struct tracker_knobs *get_knobs(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&knobs, &zero);
}

static __always_inline bool has_comm(const struct tracker_knobs *k, const struct task_struct *task)
{
	const __u64 *asked = (const __u64 *)k->comm;
	__u64 comm[2] = {};

	if (!asked[0])
		return true;
	bpf_probe_read_kernel(comm, sizeof(comm), task->comm);
	return comm[0] == asked[0] && comm[1] == asked[1];
}

#define CGROUP_DEPTH 32 /* no orchestrator comes near it */

/* Whether a task is in the cgroup with this id, or in one below it. */
static __always_inline bool is_below(const struct task_struct *task, __u64 id)
{
	const struct cgroup *cgroup = task->cgroups->dfl_cgrp;

	for (int i = 0; cgroup && i < CGROUP_DEPTH; i++) {
		if (cgroup->kn->id == id)
			return true;
		if (!cgroup->self.parent)
			return false;
		cgroup = cgroup->self.parent->cgroup;
	}
	return false;
}

/* Whether the filter lets a task through. A processor that idles is no task, and the tracker does not track itself. */
static __always_inline bool watched(const struct tracker_knobs *k, const struct task_struct *task)
{
	__u32 tgid = task->tgid;

	return tgid && tgid != k->own_tgid && (!k->tgid || tgid == k->tgid) &&
	       (!k->cgroup_id || is_below(task, k->cgroup_id)) && has_comm(k, task);
}

/* Count one more of this second; false: it is above the limit. */
static __noinline bool within_limit(__u32 per_second, bool stack)
{
	__u32 zero = 0;
	struct window *w = bpf_map_lookup_elem(&window, &zero);
	__u64 second = bpf_ktime_get_boot_ns() >> 30, *n;

	if (!w || !per_second)
		return true;
	if (w->second != second) {
		w->second = second;
		w->records = 0;
		w->stacks = 0;
	}
	n = stack ? &w->stacks : &w->records;
	if (*n >= per_second)
		return false;
	add(n, 1);
	return true;
}

#endif
