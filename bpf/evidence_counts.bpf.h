/* SPDX-License-Identifier: GPL-2.0 */
/*
 * evidence_counts.bpf.h: what a signal counts per (target set, role, owner) beside its records. Metrics that are to be
 * exact are made of these counts: a ring may be full, a reader may stand still.
 */
#ifndef LATENCYPROBE_EVIDENCE_COUNTS_BPF_H
#define LATENCYPROBE_EVIDENCE_COUNTS_BPF_H

#include <bpf/bpf_helpers.h>
#include "events.h"
#include "maps.bpf.h"

/* As many keys as `counts` has, 128 bytes per CPU each: a node of 64 CPUs with 50 containers in use takes 400 KiB. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 1024);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct counts_key);
	__type(value, struct evidence_counts);
} evidence_counts SEC(".maps");

static const struct evidence_counts no_evidence_counts;

/* All of a tool, which has no target set, counts under owner 0. */
static __noinline struct evidence_counts *evidence_counts_of(const struct flow_header *flow)
{
	const struct config *cfg = get_config();
	struct counts_key key = {};

	key.target_set = flow->target_set;
	key.role = flow->role;
	if (cfg && flow->target_set)
		key.owner = cfg->owner_by_process ? flow->owner_tgid : flow->cgroup_id;
	return counts_in(&evidence_counts, &key, &no_evidence_counts);
}

#endif
