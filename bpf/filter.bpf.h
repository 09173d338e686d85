/* SPDX-License-Identifier: GPL-2.0 */
/* filter.bpf.h: which flows a tool observes; in an agent the plan decides instead. */
#ifndef LATENCYPROBE_FILTER_BPF_H
#define LATENCYPROBE_FILTER_BPF_H

#include <bpf/bpf_helpers.h>
#include "events.h"
#include "address.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct evidence_filter);
} evidence_filter SEC(".maps");

static __always_inline bool passes(const struct evidence_filter *f, const struct flow_header *flow)
{
	const __u64 *addr = (const __u64 *)f->addr;

	return (!f->cgroup_id || f->cgroup_id == flow->cgroup_id) && (!f->tgid || f->tgid == flow->owner_tgid) &&
	       (!f->port || f->port == flow->local_port || f->port == flow->peer_port) &&
	       (!f->family || f->family == flow->family) &&
	       ((!addr[0] && !addr[1]) || same_addr(f->addr, flow->local_addr) || same_addr(f->addr, flow->peer_addr));
}

#endif
