/* SPDX-License-Identifier: GPL-2.0 */
/* handshake_counts.bpf.h: one handshake that has ended, by either method: counted, and its record sent. */
#ifndef LATENCYPROBE_HANDSHAKE_COUNTS_BPF_H
#define LATENCYPROBE_HANDSHAKE_COUNTS_BPF_H

#include <bpf/bpf_helpers.h>
#include "events.h"
#include "evidence_counts.bpf.h"
#include "maps.bpf.h"

/* 1 MiB: 6,000 handshakes, a third of a second at 20,000 a second. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} handshakes SEC(".maps");

static __noinline void count_and_emit(struct handshake *h)
{
	struct evidence_counts *n = evidence_counts_of(&h->flow);
	const struct config *cfg = get_config();
	__u32 outcome = h->outcome;

	if (n && outcome < CONNECT_COUNT)
		add(&n->connections[outcome], 1);
	if (n && h->flags & HANDSHAKE_AMBIGUOUS)
		add(&n->ambiguous, 1);
	if (cfg && !emit(&handshakes, h, sizeof(*h), cfg) && n)
		add(&n->lost_records, 1);
}

#endif
