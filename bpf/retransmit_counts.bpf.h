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

/* Not static, as the next one: verified once, not once for each way to it. */
__noinline int send_record(struct retransmit *r)
{
	const struct config *cfg = get_config();

	return r && cfg && emit(&retransmits, r, sizeof(*r), cfg);
}

__noinline int count_sent(const struct flow_header *flow, const struct sent *more)
{
	struct evidence_counts *n;

	if (!flow || !more)
		return 0;
	n = evidence_counts_of(flow);
	if (!n)
		return 0;
	add(&n->segs_sent, more->segs_sent);
	add(&n->bytes_sent, more->bytes_sent);
	add(&n->segs_retrans, more->segs_retrans);
	add(&n->bytes_retrans, more->bytes_retrans);
	add(&n->segs_unrecorded, more->segs_unrecorded);
	add(&n->duplicates, more->duplicates);
	add(&n->undone, more->undone);
	add(&n->lost_records, more->lost_records);
	return 0;
}

/*
 * Whether `total_retrans` has grown by an attempt with this error, as it does once the segment is handed down to IP. The
 * other errors come first: still in the host's queue, no window, no route, no memory to split it
 * (net/ipv4/tcp_output.c, __tcp_retransmit_skb).
 */
static __always_inline bool in_total(int err)
{
	return err != -EBUSY && err != -EAGAIN && err != -EHOSTUNREACH && err != -ENOMEM;
}

/*
 * Send a record, and count what it tells of. A failed attempt is no retransmit, and none that has no record either, even
 * if it is in `total_retrans`.
 */
static __noinline int deliver(void *ctx, struct retransmit *r, struct sender *s)
{
	bool attempt = r->kind == RETRANSMIT_SEGMENT || r->kind == RETRANSMIT_SYNACK;
	__u32 tried = attempt && in_total(r->err) ? r->segs : 0, segs = r->err ? 0 : tried;
	struct sent more = {};
	int delivered;

	if (s) {
		more.bytes_sent = r->bytes_sent;
		more.bytes_retrans = r->bytes_retrans;
		more.segs_sent = r->data_segs_out;
		more.segs_retrans = r->total_retrans;
		more.duplicates = r->dsack_dups;
		take_growth(s, &more, r->flow.boot_ns);
		r->new_duplicates = more.duplicates;
	}
	delivered = options() & RETRANSMIT_OPTION_STACKS ? emit_with_stack(ctx, r) : send_record(r);
	more.segs_unrecorded = more.segs_retrans >= tried ? more.segs_retrans - tried : 0;
	more.segs_retrans = more.segs_unrecorded + segs;
	more.undone = r->kind == RETRANSMIT_UNDO ? r->segs : 0;
	if (!delivered) {
		more.segs_unrecorded += segs;
		more.lost_records = 1;
	}
	return count_sent(&r->flow, &more);
}

static __always_inline bool has_grown(const struct tcp_sock *tp, const struct sender *s, __u32 retrans)
{
	return tp->bytes_sent != s->bytes_sent || retrans != s->segs_retrans || tp->dsack_dups != s->duplicates;
}

/*
 * Count what a socket's counters have grown without a record: nobody explains an exchange by them. `retrans`: of
 * total_retrans, so much.
 */
static __noinline int count_in_plan(struct sock *sk, const struct tcp_sock *tp, struct sender *s, __u32 retrans)
{
	struct flow_header flow = {};
	struct sent more = {};

	if (!evidence_requested(sk, EVIDENCE_RETRANSMITS, ROLE_UNKNOWN, &flow))
		return 0;
	read_counters(tp, &more);
	more.segs_retrans = retrans;
	take_growth(s, &more, flow.boot_ns);
	more.segs_unrecorded = more.segs_retrans;
	return count_sent(&flow, &more);
}

#endif
