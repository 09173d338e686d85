/* SPDX-License-Identifier: GPL-2.0 */
/* wait_record.bpf.h: records of waits: their ring, their limit, and how they are sent. */
#ifndef LATENCYPROBE_WAIT_RECORD_BPF_H
#define LATENCYPROBE_WAIT_RECORD_BPF_H

#include <bpf/bpf_helpers.h>
#include "events.h"
#include "evidence.bpf.h"
#include "evidence_counts.bpf.h"
#include "wait_thread.bpf.h"

/* 1,700 records: the limit of four target sets in a second. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 << 20);
} waits SEC(".maps");

struct limit {
	__u64 second; /* of 2^30 ns */
	__u64 records;
};

/* By target set and kind of record, so that one kind leaves the other its room. Two CPUs may let one more through. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2048);
	__type(key, __u32);
	__type(value, struct limit);
} limits SEC(".maps");

static __always_inline bool within_limit(__u32 target_set, __u8 kind, __u64 now_ns)
{
	__u32 key = target_set * 2 + (kind == WAIT_ONE);
	struct limit *l = bpf_map_lookup_elem(&limits, &key);

	if (!l)
		return false;
	if (l->second != now_ns >> 30) {
		l->second = now_ns >> 30;
		l->records = 0;
	}
	return l->records++ < LP_WAITS_PER_SECOND;
}

/*
 * Room in the ring for a record of `flow`, all of it 0 but flow and stack; NULL: lost, and counted. Records are too large
 * for a program's stack.
 */
static __always_inline struct wait *reserve(const struct flow_header *flow, __u8 kind, struct evidence_counts *n)
{
	bool within = within_limit(flow->target_set, kind, flow->boot_ns);
	struct wait *w = within ? bpf_ringbuf_reserve(&waits, sizeof(*w), 0) : NULL;

	if (!w) {
		count_lost(within ? LOST_RING_FULL : LOST_LIMIT);
		if (n)
			add(&n->lost_records, 1);
		return NULL;
	}
	__builtin_memset((void *)w + sizeof(w->flow), 0, __builtin_offsetof(struct wait, stack) - sizeof(w->flow));
	__builtin_memcpy(&w->flow, flow, sizeof(w->flow));
	w->kind = kind;
	return w;
}

/* Wake the reader early only when the ring has filled up. */
static __always_inline void submit(struct wait *w)
{
	const struct config *cfg = get_config();
	bool full = cfg && bpf_ringbuf_query(&waits, BPF_RB_AVAIL_DATA) >= cfg->wakeup_bytes;

	bpf_ringbuf_submit(w, full ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP);
}

#endif
