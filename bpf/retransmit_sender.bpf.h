/* SPDX-License-Identifier: GPL-2.0 */
/*
 * retransmit_sender.bpf.h: what is kept with a socket that retransmits: how far its counters were counted, what it has
 * sent again, and in which recovery. Hooks run under the socket's lock, all but the iterator: the counters have a lock
 * of their own.
 */
#ifndef LATENCYPROBE_RETRANSMIT_SENDER_BPF_H
#define LATENCYPROBE_RETRANSMIT_SENDER_BPF_H

#include <bpf/bpf_helpers.h>
#include "events.h"
#include "evidence.bpf.h"
#include "kernel.h"

/* What was counted of a socket that has sent something again, or whose counters the plan requests, while it does. */
struct sender {
	struct bpf_spin_lock lock; /* of the counters that were counted; the rest is under the socket's */
	__u32 segs_sent;
	__u32 segs_retrans;
	__u32 duplicates;
	__u32 undone;	    /* segments that an undo has marked: a DSACK of them is no news */
	__u32 episode_segs; /* sent again in this Recovery or Loss */
	__u32 episode_dups; /* dsack_dups at its first */
	__u32 can_undo;	    /* it has begun with an undo_marker */
	__u64 bytes_sent;
	__u64 bytes_retrans;
	__u64 counted_ns;
	__u64 generation; /* of the plan that is known to request it */
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct sender);
} senders SEC(".maps");

struct range {
	__u64 offset; /* position in the stream, as bytes_acked counts it */
	__u64 times;
};

/* What a socket has sent again last. Of more than so many ranges without an ACK, `nth` of the oldest gets unknown. */
#define RANGES 64

struct resent {
	__u64 forgotten; /* of ranges before this offset some are not here any more */
	__u64 next;	 /* place that is used next */
	struct range ranges[RANGES];
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct resent);
} resents SEC(".maps");

static __always_inline bool is_tool(void)
{
	__u32 zero = 0;
	const struct evidence_filter *f = bpf_map_lookup_elem(&evidence_filter, &zero);

	return f && f->mode == MATCH_FILTER;
}

/* The socket's counters, or what they have grown; and what else is to be counted then. */
struct sent {
	__u64 bytes_sent;
	__u64 bytes_retrans;
	__u32 segs_sent;
	__u32 segs_retrans;
	__u32 duplicates;
	__u32 segs_unrecorded;
	__u32 undone;
	__u32 lost_records;
};

static __always_inline void read_counters(const struct tcp_sock *tp, struct sent *sent)
{
	sent->bytes_sent = tp->bytes_sent;
	sent->bytes_retrans = tp->bytes_retrans;
	sent->segs_sent = tp->data_segs_out;
	sent->segs_retrans = tp->total_retrans;
	sent->duplicates = tp->dsack_dups;
}

/* n if it is positive, else 0; without a branch: the verifier would follow each of the 2^6 ways through take_growth(). */
static __always_inline __u64 positive(__s64 n)
{
	return n & ~(n >> 63);
}

/* `sent` has the counters; make it their growth since they were last counted. */
static __noinline int take_growth(struct sender *s, struct sent *sent, __u64 now_ns)
{
	__u64 bytes_sent, bytes_retrans, segs, retrans, duplicates, known;

	bpf_spin_lock(&s->lock);
	/* the iterator reads without the socket lock: another hook may have counted more by now */
	bytes_sent = positive(sent->bytes_sent - s->bytes_sent);
	bytes_retrans = positive(sent->bytes_retrans - s->bytes_retrans);
	segs = positive((__s32)(sent->segs_sent - s->segs_sent));
	retrans = positive((__s32)(sent->segs_retrans - s->segs_retrans));
	duplicates = positive((__s32)(sent->duplicates - s->duplicates));
	s->bytes_sent += bytes_sent;
	s->bytes_retrans += bytes_retrans;
	s->segs_sent += segs;
	s->segs_retrans += retrans;
	s->duplicates += duplicates;
	known = duplicates - positive(duplicates - s->undone);
	s->undone -= known;
	s->counted_ns = now_ns;
	bpf_spin_unlock(&s->lock);
	sent->bytes_sent = bytes_sent;
	sent->bytes_retrans = bytes_retrans;
	sent->segs_sent = segs;
	sent->segs_retrans = retrans;
	sent->duplicates = duplicates - known;
	return 0;
}

/*
 * The sender of a requested socket, made when it is first seen; its counters count from then, with what it sends again
 * now. `connections` are the plan's; those of a tool are its own: there they keep the addresses of what has sent again,
 * for the iterator and for the end, when the socket has lost them.
 */
static __noinline struct sender *sender_of(struct sock *sk, const struct tcp_sock *tp, const struct flow_header *flow,
					   __u32 segs, __u32 bytes)
{
	struct sender *s = bpf_sk_storage_get(&senders, sk, 0, 0);
	const struct config *cfg = get_config();
	struct connection *c;

	if (s)
		return s;
	s = bpf_sk_storage_get(&senders, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!s) {
		count_lost(LOST_STORAGE);
		return NULL;
	}
	s->bytes_sent = tp->bytes_sent - bytes;
	s->bytes_retrans = tp->bytes_retrans - bytes;
	s->segs_sent = tp->data_segs_out - (bytes ? segs : 0); /* a bare SYN or FIN is not in it */
	s->segs_retrans = tp->total_retrans - segs;
	s->duplicates = tp->dsack_dups;
	s->counted_ns = flow->boot_ns;
	s->generation = cfg ? cfg->generation : 0;
	if (!is_tool())
		return s;
	c = bpf_sk_storage_get(&connections, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!c)
		return s;
	__builtin_memcpy(c->current.local_addr, flow->local_addr, sizeof(flow->local_addr));
	__builtin_memcpy(c->current.peer_addr, flow->peer_addr, sizeof(flow->peer_addr));
	c->current.local_port = flow->local_port;
	c->current.peer_port = flow->peer_port;
	c->current.role = flow->role;
	return s;
}

/* Count this range as sent once more. `acked`: bytes_acked, which never wraps. */
static __noinline __u32 count_resent(struct sock *sk, __u64 offset, __u64 acked)
{
	struct resent *resent = bpf_sk_storage_get(&resents, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	struct range *range;

	if (!resent)
		return 0;
	for (__u32 i = 0; i < RANGES; i++) {
		range = &resent->ranges[i];
		if (range->times && range->offset == offset)
			return ++range->times;
	}
	range = &resent->ranges[resent->next++ & (RANGES - 1)];
	if (range->times && range->offset >= acked && resent->forgotten <= range->offset)
		resent->forgotten = range->offset + 1;
	range->offset = offset;
	range->times = 1;
	return offset < resent->forgotten ? 0 : 1;
}

#endif
