/* SPDX-License-Identifier: GPL-2.0 */
/* retransmit_counts.bpf.h: what was sent and sent again, counted; and the record of what was sent again. */
#ifndef LATENCYPROBE_RETRANSMIT_COUNTS_BPF_H
#define LATENCYPROBE_RETRANSMIT_COUNTS_BPF_H

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "events.h"
#include "evidence_counts.bpf.h"
#include "kernel.h"
#include "maps.bpf.h"
#include "retransmit_sender.bpf.h"

/* 1 MiB holds 5,000 records: losing 5 % of 1 GB/s, they come in 150 ms. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} retransmits SEC(".maps");

/* Only a tool records stacks, and gives the ring its size. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} stacks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} retransmit_options SEC(".maps");

static __always_inline __u32 options(void)
{
	__u32 zero = 0, *flags = bpf_map_lookup_elem(&retransmit_options, &zero);

	return flags ? *flags : 0;
}

/* Puts the type into the object's BTF, where the loader compares it: a pointer alone does not. */
struct retransmit_stack *retransmit_stack_type __attribute__((unused));

static __noinline bool emit_with_stack(void *ctx, const struct retransmit *r)
{
	struct retransmit_stack *with = bpf_ringbuf_reserve(&stacks, sizeof(*with), 0);

	if (!with) {
		count_lost(LOST_RING_FULL);
		return false;
	}
	with->retransmit = *r;
	__builtin_memset(with->stack, 0, sizeof(with->stack));
	bpf_get_stack(ctx, with->stack, sizeof(with->stack), 0);
	bpf_ringbuf_submit(with, 0);
	return true;
}

/* Count the growth of a socket's counters. `recorded`: segments of `segs_retrans` that have a record of their own. */
static __always_inline void count_growth(struct evidence_counts *n, const struct sent *growth, __u32 recorded)
{
	__u32 missing = growth->segs_retrans >= recorded ? growth->segs_retrans - recorded : 0;

	add(&n->segs_sent, growth->segs_sent);
	add(&n->bytes_sent, growth->bytes_sent);
	add(&n->bytes_retrans, growth->bytes_retrans);
	add(&n->duplicates, growth->duplicates);
	add(&n->segs_retrans, missing);
	add(&n->segs_unrecorded, missing);
}

/*
 * Send a record, and count what it tells of. A failed attempt counts in `total_retrans` if it came as far as the
 * device: it is no retransmit, and none that has no record.
 */
static __noinline int deliver(void *ctx, struct retransmit *r, struct sender *s)
{
	bool attempt = r->kind == RETRANSMIT_SEGMENT || r->kind == RETRANSMIT_SYNACK, delivered;
	struct evidence_counts *n = evidence_counts_of(&r->flow);
	const struct config *cfg = get_config();
	__u32 segs = attempt && !r->err ? r->segs : 0;
	struct sent growth = {
		.bytes_sent = r->bytes_sent,
		.bytes_retrans = r->bytes_retrans,
		.segs_sent = r->data_segs_out,
		.segs_retrans = r->total_retrans,
		.duplicates = r->dsack_dups,
	};

	if (!cfg)
		return 0;
	if (s) {
		take_growth(s, &growth, r->flow.boot_ns);
		r->new_duplicates = growth.duplicates;
	}
	delivered = options() & RETRANSMIT_OPTION_STACKS ? emit_with_stack(ctx, r)
							 : emit(&retransmits, r, sizeof(*r), cfg);
	if (!n)
		return 0;
	if (s)
		count_growth(n, &growth, attempt ? r->segs : 0);
	add(&n->segs_retrans, segs);
	if (r->kind == RETRANSMIT_UNDO)
		add(&n->undone, r->segs);
	if (!delivered) {
		add(&n->lost_records, 1);
		add(&n->segs_unrecorded, segs);
	}
	return 0;
}

/* Count a socket's counters without a record: nobody explains an exchange by them. */
static __noinline int count_counters(const struct tcp_sock *tp, struct sender *s, const struct flow_header *flow)
{
	struct evidence_counts *n = evidence_counts_of(flow);
	struct sent growth = {};

	if (!n)
		return 0;
	read_counters(tp, &growth);
	take_growth(s, &growth, flow->boot_ns);
	count_growth(n, &growth, 0);
	return 0;
}

#endif
