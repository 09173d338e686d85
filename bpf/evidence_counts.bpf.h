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

/* As many entries as `counts` has, of 256 bytes. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, LP_COUNTS_SLOTS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct counts_slot);
	__type(value, struct evidence_counts);
} evidence_counts SEC(".maps");

static const struct evidence_counts no_evidence_counts;

/* All of a tool, which has no target set, counts under owner 0. */
static __noinline struct evidence_counts *evidence_counts_of(const struct flow_header *flow)
{
	const struct config *cfg = get_config();
	struct counts_slot slot = {};

	slot.key.target_set = flow->target_set;
	slot.key.role = flow->role;
	if (cfg && flow->target_set)
		slot.key.owner = cfg->owner_by_process ? flow->owner_tgid : flow->cgroup_id;
	return counts_in(&evidence_counts, &slot, &no_evidence_counts);
}

#endif
