/* SPDX-License-Identifier: GPL-2.0 */
/* http2_closing.bpf.h: streams that are over are accounted for, those of a connection that ends or was lost all at once. */
#ifndef LATENCYPROBE_HTTP2_CLOSING_BPF_H
#define LATENCYPROBE_HTTP2_CLOSING_BPF_H

#include <bpf/bpf_helpers.h>
#include "events.h"
#include "kernel.h"
#include "exchange_account.bpf.h"
#include "exchange_judge.bpf.h"
#include "exchange_turns.bpf.h"
#include "http2_connection.bpf.h"

/* The stream is over: account for it and let go of it. `excluded`: not by what it was, but by what befell us. */
static __noinline void close_stream(struct http2 *h, const struct connection *c, const struct tcp_sock *tp,
				    struct stream *s, __u8 excluded)
{
	struct stream_key key = { .cookie = h->cookie, .id = s->x.stream_id };
	__u32 *slot = &h->slots[key.id / 2 % SLOTS];
	struct exchange *x = &s->x;

	if (__sync_fetch_and_or(&s->state, STREAM_CLOSED) & STREAM_CLOSED)
		return;
	x->srtt_us = tp->srtt_us >> 3;
	x->rtt_min_us = tp->rtt_min.s[0].v;
	x->retransmits = resent_since(tp, s->retransmits);
	x->conn_class = s->flags & STREAM_STREAMING ? CLASS_STREAMING : CLASS_UNARY;
	x->excluded = x->conn_class == CLASS_STREAMING ? EXCLUDED_STREAMING : EXCLUDED_NONE;
	if (c->own)
		x->excluded = EXCLUDED_OWN;
	else if (c->peer)
		x->conn_class = CLASS_PEER, x->excluded = EXCLUDED_PEER;
	else if (excluded)
		x->excluded = excluded;
	account(x, NULL);
	if (*slot == key.id)
		*slot = 0;
	else
		__sync_fetch_and_add(&h->unslotted, -1);
	__sync_fetch_and_add(&h->open, -1);
	bpf_map_delete_elem(&streams, &key);
}

/* A server's request goes on at `ns`, though the client could have had the answer's beginning. */
static __always_inline bool goes_on(const struct tcp_sock *tp, const struct stream *s, __u64 ns)
{
	return s->flags & STREAM_ANSWERED && (__s64)(ns - s->x.send_start_ns) > (__s64)tp->rtt_min.s[0].v * 1000;
}

/* It ended by a reset or with its connection, at `ended_ns`; one whose answer was whole has not failed. */
static __always_inline void break_stream(struct http2 *h, const struct connection *c, const struct tcp_sock *tp,
					 struct stream *s, __u8 outcome, __u64 ended_ns, __u8 excluded)
{
	if (h->role == ROLE_SERVER && !(s->state & STREAM_REQUEST_ENDED) && goes_on(tp, s, ended_ns))
		s->flags |= STREAM_STREAMING;
	if (!(s->state & STREAM_ANSWER_ENDED)) {
		s->x.outcome = outcome;
		fail(&s->x, s->flags & STREAM_ANSWERED, ended_ns);
	}
	close_stream(h, c, tp, s, excluded);
}

struct breaking {
	struct http2 *h;
	struct connection *c;
	const struct tcp_sock *tp;
};

static long break_slot(__u32 index, struct breaking *b)
{
	struct http2 *h = b->h;
	__u32 id = h->slots[index % SLOTS];
	struct stream *s = id ? find_stream(h, id) : NULL;

	if (s)
		break_stream(h, b->c, b->tp, s, h->closing & 0xff, h->closing_ns, h->closing >> 8);
	return h->open <= 0;
}

static long break_unslotted(void *map, struct stream_key *key, struct stream *s, struct breaking *b)
{
	struct http2 *h = b->h;

	if (key->cookie == h->cookie)
		break_stream(h, b->c, b->tp, s, h->closing & 0xff, h->closing_ns, h->closing >> 8);
	return h->open <= 0;
}

/* End all that is open: with the connection, or since nothing is known of it any more (`excluded`). */
static __noinline void break_all(struct http2 *h, struct connection *c, const struct tcp_sock *tp, __u32 closing,
				 __u64 now_ns)
{
	struct breaking b = { .h = h, .c = c, .tp = tp };

	bpf_spin_lock(&h->lock);
	h->endings_tail = h->endings_head;
	bpf_spin_unlock(&h->lock);
	if (h->open <= 0)
		return;
	h->closing = closing;
	h->closing_ns = now_ns;
	bpf_loop(SLOTS, break_slot, &b, 0);
	if (h->unslotted > 0)
		bpf_for_each_map_elem(&streams, break_unslotted, &b, 0);
}

#define BROKEN_BY(outcome, excluded) ((outcome) | (excluded) << 8)

/* Count streams of (target set, role, owner) that nobody saw begin. Not static: it is verified once. */
__noinline int count_unseen_of(__u32 target_set, __u32 role, __u64 owner, __u32 unseen)
{
	struct counts_slot slot = { .key = { .target_set = target_set, .role = role, .owner = owner } };
	struct exchange_counts *n = counts_of(&slot);

	if (n) {
		add(&n->classes[CLASS_UNKNOWN], unseen);
		add(&n->excluded[EXCLUDED_OUT_OF_STEP], unseen);
	} else {
		count_unaccounted(target_set, unseen);
	}
	return 0;
}

/* The same, of a connection. */
static __always_inline void count_unseen(const struct http2 *h, const struct connection *c, __u32 unseen)
{
	const struct exchange *x = &c->current;
	const struct config *cfg = get_config();
	bool by_process = cfg && cfg->owner_by_process;

	count_unseen_of(h->target_set, h->role, by_process ? (x->writer_tgid ?: x->reader_tgid) : x->cgroup_id, unseen);
}

#endif
