/* SPDX-License-Identifier: GPL-2.0 */
/*
 * exchange_verdict.bpf.h: what one end of a connection has found and the other, on this host, cannot see. A client that
 * is always some requests ahead of a slow server sends each request over no unread bytes, and each response has left a
 * peer that had all requests: its server knows better (docs/limits.md). A server takes for a request what a client sends
 * that has not looked at its early answer: the client knows. The two ends are two sockets and know each other by where
 * their streams begin, which no address translation changes (docs/design/measurement.md, "Pairing").
 */
#ifndef LATENCYPROBE_EXCHANGE_VERDICT_BPF_H
#define LATENCYPROBE_EXCHANGE_VERDICT_BPF_H

#include <bpf/bpf_helpers.h>
#include "events.h"
#include "storage.bpf.h"

/* Sequence numbers of the streams' first bytes. */
struct ends {
	__u32 client;
	__u32 server;
};

struct verdict {
	__u64 late_until; /* client: up to this offset its stream is requests whose answer had begun */
	__u64 pipelined;  /* server: requests come before their turn */
};

/*
 * 16,384 such connections at a time. The least recently used one goes when there are more: its client's end is then
 * classified by what it sees itself, until the server's end reports again with its next exchange.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct ends);
	__type(value, struct verdict);
} overlapping SEC(".maps");

/* No connection on most hosts: then nobody looks them up. Too high by what was evicted, which costs look-ups only. */
static __s64 overlapping_count;

static __always_inline void overlap_is_over(const struct ends *ends)
{
	if (overlapping_count > 0 && !bpf_map_delete_elem(&overlapping, ends))
		__sync_fetch_and_add(&overlapping_count, -1);
}

static __always_inline struct verdict *verdict_of(const struct ends *ends)
{
	struct verdict none = {}, *found = bpf_map_lookup_elem(&overlapping, ends);

	if (found)
		return found;
	if (!bpf_map_update_elem(&overlapping, ends, &none, BPF_NOEXIST))
		__sync_fetch_and_add(&overlapping_count, 1);
	return bpf_map_lookup_elem(&overlapping, ends);
}

/* The client's end sends up to sequence number `until`, late. */
static __always_inline void tell_late(const struct connection *c, __u32 until)
{
	struct ends ends = {
		.client = c->out_seq - (__u32)c->out_offset,
		.server = c->in_seq - (__u32)c->in_offset,
	};
	struct verdict *verdict = verdict_of(&ends);

	if (verdict)
		verdict->late_until = c->out_offset + (__u32)(until - c->out_seq);
}

/* An ended exchange reports what its end has found, or learns what the other end has: true, and it is no event. */
static __always_inline bool share_verdict(struct exchange *x)
{
	bool ambiguous = x->conn_class == CLASS_PIPELINED || x->conn_class == CLASS_MULTIPLEXED;
	bool serves = x->role == ROLE_SERVER;
	struct verdict *verdict;
	struct ends ends = {};

	if (overlapping_count <= 0 && (!ambiguous || !serves))
		return false;
	ends.client = x->request_seq - (__u32)x->request_offset;
	ends.server = x->response_seq - (__u32)x->response_offset;
	verdict = serves && ambiguous ? verdict_of(&ends) : bpf_map_lookup_elem(&overlapping, &ends);
	if (!verdict)
		return false;
	if (serves) {
		if (!x->excluded && x->request_offset < verdict->late_until)
			x->excluded = EXCLUDED_OVERLAP;
		verdict->pipelined = ambiguous;
		if (!ambiguous && x->request_offset >= verdict->late_until)
			overlap_is_over(&ends);
		return false;
	}
	if (!verdict->pipelined)
		return false;
	if (!x->excluded) {
		x->conn_class = CLASS_PIPELINED;
		x->excluded = EXCLUDED_PIPELINED;
	}
	return true;
}

/* The server's end goes, or is measured no more. */
static __always_inline void forget_verdict(const struct connection *c)
{
	struct ends ends = {};

	if (overlapping_count <= 0 || c->current.role != ROLE_SERVER)
		return;
	ends.client = c->in_seq - (__u32)c->in_offset;
	ends.server = c->out_seq - (__u32)c->out_offset;
	overlap_is_over(&ends);
}

#endif
