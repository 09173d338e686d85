/* SPDX-License-Identifier: GPL-2.0 */
/*
 * exchange_verdict.bpf.h: connections of this host whose server's end sees requests come before their turn. The
 * client's end may not see it: one that is always some requests ahead of a slow server sends each request over no
 * unread bytes, and each response has left a peer that had all requests (docs/limits.md). The two ends are two sockets
 * and know each other by where their streams begin, which no address translation changes (docs/design/measurement.md,
 * "Pairing").
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

/*
 * 16,384 such connections at a time. The least recently used one goes when there are more: its client's end is then
 * classified by what it sees itself, until the server's end reports again with its next exchange.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct ends);
	__type(value, __u8);
} overlapping SEC(".maps");

/* No connection on most hosts: then nobody looks them up. Too high by what was evicted, which costs look-ups only. */
static __s64 overlapping_count;

static __always_inline void overlap_is_over(const struct ends *ends)
{
	if (overlapping_count > 0 && !bpf_map_delete_elem(&overlapping, ends))
		__sync_fetch_and_add(&overlapping_count, -1);
}

/* An ended exchange reports what its end has found, or learns what the other end has: true, and it is no event. */
static __always_inline bool share_verdict(struct exchange *x)
{
	bool ambiguous = x->conn_class == CLASS_PIPELINED || x->conn_class == CLASS_MULTIPLEXED;
	struct ends ends = {};
	__u8 yes = 1;

	if (overlapping_count <= 0 && (!ambiguous || x->role != ROLE_SERVER))
		return false;
	if (!x->request_bytes || !x->response_bytes)
		return false; /* no sequence number of what never came */
	ends.client = x->request_seq - (__u32)x->request_offset;
	ends.server = x->response_seq - (__u32)x->response_offset;
	if (x->role == ROLE_SERVER) {
		if (!ambiguous)
			overlap_is_over(&ends);
		else if (!bpf_map_lookup_elem(&overlapping, &ends) &&
			 !bpf_map_update_elem(&overlapping, &ends, &yes, BPF_NOEXIST))
			__sync_fetch_and_add(&overlapping_count, 1);
		return false;
	}
	if (!bpf_map_lookup_elem(&overlapping, &ends))
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

	if (!c->ambiguous || c->current.role != ROLE_SERVER)
		return;
	ends.client = c->in_seq - (__u32)c->in_offset;
	ends.server = c->out_seq - (__u32)c->out_offset;
	overlap_is_over(&ends);
}

#endif
