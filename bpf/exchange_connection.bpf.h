/* SPDX-License-Identifier: GPL-2.0 */
/*
 * exchange_connection.bpf.h: the state machine of one connection, docs/design/measurement.md, "State machine". Every
 * function here runs under the connection's lock, on values read before it: no clock, no map, no ring. A finished
 * exchange is copied to `out`, which the hook accounts and emits after unlocking.
 *
 * Positions in the two byte streams are kept as the last sequence number seen and its 64-bit stream offset; each
 * hook first advances them, so that a missed firing costs one flagged stamp and never a wrong message.
 */
#ifndef LATENCYPROBE_EXCHANGE_CONNECTION_BPF_H
#define LATENCYPROBE_EXCHANGE_CONNECTION_BPF_H

#include <bpf/bpf_helpers.h>
#include "events.h"
#include "kernel.h"
#include "storage.bpf.h"

/*
 * What a hook read from the socket before it took the lock. `received`: rcv_nxt without the peer's FIN. What only
 * beginnings and ends of exchanges need is read from the socket there.
 */
struct view {
	const struct tcp_sock *tp;
	__u64 now_ns;
	__u32 received;
	__u32 copied;
	__u32 written;
	__u32 acked; /* snd_una: what the peer had of ours when it sent what it sent last */
	__u32 flags; /* enum exchange_flags found on the way */
};

static __always_inline __u32 ones(__u32 bits)
{
	bits -= (bits >> 1) & 0x55555555;
	bits = (bits & 0x33333333) + ((bits >> 2) & 0x33333333);
	return (((bits + (bits >> 4)) & 0x0f0f0f0f) * 0x01010101) >> 24;
}

/* A message longer than this, or sent for longer, is a stream: transfer, not waiting, dominates it. */
#define STREAM_BYTES (1ULL << 20)
#define STREAM_NS 1000000000ULL
/* Overlaps in 32 turns; one alone is a reconnect or a probe, docs/design/measurement.md, "Classes". */
#define PIPELINED_TURNS 2
#define MULTIPLEXED_TURNS 8
/*
 * Turns without overlap until such a connection is believed again: as many as it went on overlapping, within these
 * bounds, and the upper one once it has relapsed or multiplexes. Among many streams there are long runs in which one
 * end sees turns alternate (50 gRPC streams: 30 to 70 % of turns overlap, yet runs of up to 160 do not).
 */
#define CLEAN_TURNS 32
#define CLEAN_TURNS_AGAIN 1024
/* Client bytes that its FIN follows this closely ask for no answer; a client that waited longer gave up. */
#define TEARDOWN_NS 5000000LL

static __always_inline __u8 classify(struct connection *c, const struct exchange *x)
{
	c->clean_turns = c->unread || c->early ? 0 : c->clean_turns + 1;
	if (ones(c->unread_history | c->early_history) >= PIPELINED_TURNS) {
		if (!c->ambiguous) {
			c->probation = c->probation ? CLEAN_TURNS_AGAIN : CLEAN_TURNS;
			c->ambiguous = CLASS_PIPELINED;
			c->ambiguous_from = c->turns;
		} else if (!c->clean_turns && c->turns - c->ambiguous_from > c->probation) {
			c->probation = c->turns - c->ambiguous_from;
		}
		if (ones(c->unread_history) >= MULTIPLEXED_TURNS && ones(c->early_history) >= MULTIPLEXED_TURNS) {
			c->ambiguous = CLASS_MULTIPLEXED;
			c->probation = CLEAN_TURNS_AGAIN;
		}
		if (c->probation > CLEAN_TURNS_AGAIN)
			c->probation = CLEAN_TURNS_AGAIN;
	} else if (c->clean_turns >= c->probation) {
		c->ambiguous = 0;
	}
	if (c->ambiguous || c->peer_overlaps)
		return c->ambiguous ?: CLASS_PIPELINED;
	if (x->request_bytes > STREAM_BYTES || x->response_bytes > STREAM_BYTES ||
	    (x->send_end_ns > x->send_start_ns && x->send_end_ns - x->send_start_ns > STREAM_NS))
		return CLASS_STREAM;
	return c->turns < 2 && !(x->flags & FLAG_CLOSED) ? CLASS_UNKNOWN : CLASS_PINGPONG;
}

static __always_inline void advance_out(struct connection *c, __u32 written)
{
	__s32 fresh = written - c->out_seq;

	if (fresh > 0) {
		c->out_seq = written;
		c->out_offset += fresh;
	}
}

static __always_inline void open_exchange(struct connection *c, const struct view *v, __u8 phase)
{
	struct exchange *x = &c->current;

	x->send_start_ns = 0;
	x->send_end_ns = 0;
	x->ready_first_ns = 0;
	x->ready_last_ns = 0;
	x->read_first_ns = 0;
	x->read_last_ns = 0;
	x->reader_tgid = 0;
	x->reader_tid = 0;
	x->writer_tgid = 0;
	x->writer_tid = 0;
	x->send_calls = 0;
	x->recv_calls = 0;
	x->flags = c->turns || c->first_excluded ? 0 : FLAG_FRESH;
	x->outcome = OUTCOME_OK;
	/* both, so that a message that never comes has length 0 */
	x->request_seq = x->response_seq = 0;
	if (x->role == ROLE_SERVER) {
		x->request_offset = c->in_offset;
		x->response_offset = c->out_offset;
	} else {
		x->request_offset = c->out_offset;
		x->response_offset = c->in_offset;
	}
	c->retransmits = v->tp->total_retrans;
	c->phase = phase;
	c->unasked = 0;
	c->unread = 0;
	c->early = 0;
}

/* An exchange that failed ends now, in the stage in which it was. */
static __always_inline void fail(struct exchange *x, bool answered, __u64 now_ns)
{
	if (x->role == ROLE_SERVER) {
		if (!answered)
			x->send_start_ns = now_ns;
		x->send_end_ns = now_ns;
		return;
	}
	if (!answered) {
		x->ready_first_ns = now_ns;
		x->ready_last_ns = now_ns;
	}
	x->read_last_ns = now_ns;
}

/* Why the ended exchange is no event, and its class and outcome. `answered`: its response has begun. */
static __always_inline void judge(struct connection *c, struct exchange *x, bool answered, __u64 now_ns)
{
	__u64 asked_ns = x->role == ROLE_SERVER ? x->ready_last_ns : x->send_end_ns ? x->send_end_ns : x->send_start_ns;

	x->conn_class = classify(c, x);
	x->excluded = EXCLUDED_NONE;
	if (c->unasked) {
		x->excluded = c->talked ? EXCLUDED_PUSH : EXCLUDED_SETUP;
		x->conn_class = c->talked ? CLASS_PUSH : CLASS_SETUP;
	} else if (!answered && x->outcome == OUTCOME_OK) {
		/* the asking end shows by its FIN, or by closing first, that it expected no answer */
		__u64 left_ns = x->role == ROLE_SERVER ? c->fin_ns : c->fin_ns ? 0 : now_ns;

		if (left_ns && (__s64)(left_ns - asked_ns) < TEARDOWN_NS) {
			x->excluded = EXCLUDED_TEARDOWN;
			x->conn_class = CLASS_TEARDOWN;
		} else {
			x->outcome = OUTCOME_ABORTED;
		}
	} else if (c->setup_turns) {
		x->excluded = EXCLUDED_SETUP;
		x->conn_class = CLASS_SETUP;
	}
	if (x->outcome != OUTCOME_OK)
		fail(x, answered, now_ns);
	if (c->own)
		x->excluded = EXCLUDED_OWN;
	else if (c->peer) {
		x->conn_class = CLASS_PEER;
		x->excluded = EXCLUDED_PEER;
	} else if (c->first_excluded)
		x->excluded = c->first_excluded;
	else if (x->excluded)
		return;
	else if (x->conn_class == CLASS_PIPELINED)
		x->excluded = EXCLUDED_PIPELINED;
	else if (x->conn_class == CLASS_MULTIPLEXED)
		x->excluded = EXCLUDED_MULTIPLEXED;
	else if (x->flags & FLAG_OVERLAP)
		x->excluded = EXCLUDED_OVERLAP;
}

/*
 * End the open exchange. True: `out` holds one to emit. When its last send call has not returned yet it waits in
 * `previous` instead, and what waited there (its send return was missed) is emitted.
 */
static __always_inline bool end_exchange(struct connection *c, const struct view *v, struct exchange *out)
{
	struct exchange *x = &c->current;
	bool answered = c->phase == PHASE_RESPONSE, emit = false;

	if (c->phase == PHASE_IDLE)
		return false;
	if (x->role == ROLE_SERVER) {
		x->request_bytes = c->in_offset - x->request_offset;
		x->response_bytes = c->out_offset - x->response_offset;
	} else {
		x->request_bytes = c->out_offset - x->request_offset;
		x->response_bytes = c->in_offset - x->response_offset;
	}
	x->srtt_us = v->tp->srtt_us >> 3;
	x->rtt_min_us = v->tp->rtt_min.s[0].v;
	x->retransmits = v->tp->total_retrans - c->retransmits;
	c->unread_history = c->unread_history << 1 | c->unread;
	c->early_history = c->early_history << 1 | c->early;
	if (!c->unasked && answered)
		c->turns++;
	judge(c, x, answered, v->now_ns);
	if (c->unasked && x->excluded == EXCLUDED_SETUP && !c->setup_turns)
		c->setup_turns = 1; /* the turn that answers a greeting */
	else if (!c->unasked && c->setup_turns)
		c->setup_turns--;
	c->first_excluded = EXCLUDED_NONE;
	c->phase = PHASE_IDLE;
	if (x->role == ROLE_SERVER && c->send_owner == SEND_CURRENT) {
		if (c->previous_used) {
			*out = c->previous;
			emit = true;
		}
		c->previous = *x;
		c->previous_used = 1;
		c->send_owner = SEND_PREVIOUS;
		return emit;
	}
	*out = *x;
	return true;
}

/*
 * Bytes up to sequence number `upto` have arrived. A peer that takes turns has all of our message before it sends its
 * own, and the acknowledgement in each of its segments shows what it had.
 */
static __always_inline bool arrive(struct connection *c, const struct view *v, __u32 upto, struct exchange *out)
{
	struct exchange *x = &c->current;
	bool early = (__s32)(v->acked - c->out_seq) < 0, emit = false;
	__s32 fresh = upto - c->in_seq;

	if (fresh <= 0)
		return false;
	if (x->role == ROLE_SERVER) {
		if (c->phase != PHASE_REQUEST) {
			if (c->phase == PHASE_RESPONSE && early) {
				x->flags |= FLAG_OVERLAP;
				c->early = 1;
			}
			emit = end_exchange(c, v, out);
			open_exchange(c, v, PHASE_REQUEST);
			x->request_seq = c->in_seq;
			x->ready_first_ns = v->now_ns;
			c->talked = 1;
			if (early)
				x->flags |= FLAG_OVERLAP;
		}
	} else if (c->phase != PHASE_RESPONSE) {
		if (c->phase == PHASE_IDLE) {
			open_exchange(c, v, PHASE_RESPONSE);
			c->unasked = 1;
		} else if (early) {
			x->flags |= FLAG_OVERLAP;
			c->early = 1;
		}
		c->phase = PHASE_RESPONSE;
		x->response_seq = c->in_seq;
		x->response_offset = c->in_offset;
		x->ready_first_ns = v->now_ns;
	}
	x->ready_last_ns = v->now_ns;
	x->flags |= v->flags;
	c->in_seq = upto;
	c->in_offset += fresh;
	c->last_ns = v->now_ns;
	return emit;
}

/* Bytes were read whose arrival was not seen. */
static __always_inline bool arrive_unseen(struct connection *c, struct view *v, struct exchange *out)
{
	if ((__s32)(v->copied - c->in_seq) <= 0)
		return false;
	v->flags = FLAG_READY_APPROX;
	v->acked = c->out_seq; /* what the peer had then is not known any more */
	return arrive(c, v, v->copied, out);
}

/* Bytes were read up to v->copied. Stamps belong to the message that is inbound now. */
static __always_inline void take(struct connection *c, const struct view *v, __u64 pid_tgid)
{
	struct exchange *x = &c->current;

	if ((__s32)(v->copied - c->read_seq) <= 0)
		return;
	c->read_seq = v->copied;
	if (c->phase != (x->role == ROLE_SERVER ? PHASE_REQUEST : PHASE_RESPONSE))
		return;
	if (!x->read_first_ns)
		x->read_first_ns = v->now_ns;
	x->read_last_ns = v->now_ns;
	x->recv_calls++;
	x->reader_tgid = pid_tgid >> 32;
	x->reader_tid = pid_tgid;
	c->last_ns = v->now_ns;
}

/*
 * Bytes were read and no receive call has returned: by splice, or by a call that is still in progress. A server has
 * read its request by the time it answers, so that is the stamp. When a client had read its response is not known: no
 * stamp, or its pause before the next request would count.
 */
static __always_inline void take_unseen(struct connection *c, const struct view *v)
{
	struct exchange *x = &c->current;

	if ((__s32)(v->copied - c->read_seq) <= 0)
		return;
	c->read_seq = v->copied;
	if (c->phase != (x->role == ROLE_SERVER ? PHASE_REQUEST : PHASE_RESPONSE))
		return;
	x->flags |= FLAG_READ_APPROX;
	if (x->role == ROLE_SERVER)
		x->read_last_ns = v->now_ns;
}

#endif
