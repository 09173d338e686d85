/* SPDX-License-Identifier: GPL-2.0 */
/*
 * exchange_judge.bpf.h: what an ended turn was: its class, why it is no event, how it failed. docs/design/measurement.md,
 * "Classes", "Exclusion", "Failures". Under the connection's lock.
 */
#ifndef LATENCYPROBE_EXCHANGE_JUDGE_BPF_H
#define LATENCYPROBE_EXCHANGE_JUDGE_BPF_H

#include "exchange_turns.bpf.h"

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
/* Turns of 32 in which the server had the initiative, or nobody answered, again. */
#define PUSH_TURNS 2
/*
 * Turns without overlap until such a connection is believed again: as many as it went on overlapping, within these
 * bounds, and the upper one once it has relapsed, multiplexes or pushes. Among many streams there are long runs in which
 * one end sees turns alternate (50 gRPC streams: 30 to 70 % of turns overlap, yet runs of up to 160 do not).
 */
#define CLEAN_TURNS 32
#define CLEAN_TURNS_AGAIN 1024
/*
 * After so many clean turns a response that goes on after silence was rather held up (a stalled process, a lost segment)
 * than followed by a push: alternating for CLEAN_TURNS in step and without silence tells.
 */
#define TRUSTED_TURNS 128
/* Client bytes that its FIN follows this closely ask for no answer; a client that waited longer gave up. */
#define TEARDOWN_NS 100000000LL

/* How many more turns of the server it takes until the client is taken to ask again. */
static __always_inline void resume(struct connection *c, bool cut, bool pushes)
{
	if (cut && c->clean_turns >= TRUSTED_TURNS)
		c->resuming = CLEAN_TURNS;
	else if (cut || !pushes)
		c->resuming = 0;
	else if (c->resuming > 1)
		c->resuming--;
}

/*
 * Keep in mind whether this turn overlapped, or was one that only connections without turns have; 0 or 1 each. Those of
 * set-up may cross the first request, as TLS's tickets do. Without a branch, which the verifier would follow both ways.
 */
static __always_inline void remember_turn(struct connection *c, __u32 setup)
{
	__u32 unread = c->unread & ~setup, early = c->early & ~setup, initiative = *(volatile __u8 *)&c->initiative;

	c->unread_history = c->unread_history << 1 | unread;
	c->early_history = c->early_history << 1 | early;
	c->initiative_history = c->initiative_history << 1 | initiative;
	c->clean_turns = (c->clean_turns + 1) & ((unread | early | initiative) - 1);
}

/* Is the connection one whose turns are not to be believed? `ambiguous`: the class that says so, or 0. */
static __always_inline void doubt(struct connection *c)
{
	bool pushes = ones(c->initiative_history) >= PUSH_TURNS;

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
	} else if (!pushes && c->clean_turns >= c->probation) {
		c->ambiguous = 0;
	}
	if (pushes) {
		c->ambiguous = c->ambiguous ?: CLASS_PUSH;
		c->probation = CLEAN_TURNS_AGAIN;
	}
}

static __always_inline __u8 classify(const struct connection *c, const struct exchange *x)
{
	if (c->ambiguous || c->peer_overlaps)
		return c->ambiguous ?: CLASS_PIPELINED;
	if (x->request_bytes > STREAM_BYTES || x->response_bytes > STREAM_BYTES ||
	    (x->send_end_ns > x->send_start_ns && x->send_end_ns - x->send_start_ns > STREAM_NS))
		return CLASS_STREAM;
	return c->turns < 2 && !(x->flags & FLAG_CLOSED) ? CLASS_UNKNOWN : CLASS_PINGPONG;
}

/* How a socket's error ends what is open. */
static __always_inline __u32 outcome_of(int err)
{
	switch (err) {
	case 0:
		return OUTCOME_OK;
	case ECONNRESET:
	case EPIPE:
		return OUTCOME_RESET;
	case ETIMEDOUT:
		return OUTCOME_TIMED_OUT;
	case EHOSTUNREACH:
	case ENETUNREACH:
		return OUTCOME_UNREACHABLE;
	default:
		return OUTCOME_OTHER;
	}
}

/* When the end of a failed exchange was seen: an error now, a FIN when it came, our own close when it was. */
static __always_inline __u64 end_seen_ns(const struct connection *c, const struct exchange *x, __u64 now_ns)
{
	__u64 left_ns = c->close_ns ?: c->fin_ns;

	if (x->outcome != OUTCOME_UNANSWERED && x->outcome != OUTCOME_ABORTED)
		return c->close_ns ?: now_ns;
	return left_ns > (x->role == ROLE_SERVER ? x->ready_last_ns : x->send_end_ns) ? left_ns : now_ns;
}

/* An exchange that failed ends in the stage in which it was. */
static __always_inline void fail(struct exchange *x, bool answered, __u64 ended_ns)
{
	if (x->role == ROLE_SERVER) {
		if (!answered)
			x->send_start_ns = ended_ns;
		x->send_end_ns = ended_ns;
		return;
	}
	if (!answered) {
		x->ready_first_ns = ended_ns;
		x->ready_last_ns = ended_ns;
	}
	x->read_last_ns = ended_ns;
}

static __always_inline bool server_spoke(const struct connection *c)
{
	return c->current.role == ROLE_SERVER ? c->out_offset : c->in_offset;
}

/* This end has read of the message that it received. */
static __always_inline bool was_read(const struct exchange *x)
{
	return x->read_first_ns || x->flags & FLAG_READ_APPROX;
}

/* A turn that no answer ended, and its class: a goodbye, one more one-way message, or a failure (0). */
static __always_inline __u8 unanswered(const struct connection *c, struct exchange *x, __u64 now_ns)
{
	__u64 asked_ns = x->role == ROLE_SERVER ? x->ready_last_ns : x->send_end_ns ? x->send_end_ns : x->send_start_ns;
	/* when the asking end left: at that end it closes now; a server that closes over what it has not read met its goodbye */
	__u64 left_ns = x->role == ROLE_SERVER && was_read(x) ? c->fin_ns : now_ns;

	if (c->goodbye)
		return CLASS_TEARDOWN;
	if (c->one_way && !server_spoke(c))
		return CLASS_ONEWAY;
	if (x->outcome != OUTCOME_OK)
		return 0;
	if (left_ns && (__s64)(left_ns - asked_ns) < TEARDOWN_NS)
		return CLASS_TEARDOWN;
	if (c->refused)
		return 0;
	/* who left first: the server without an answer, or the client that gave up */
	if (x->role == ROLE_SERVER ? c->close_ns || !c->fin_ns : c->fin_ns)
		x->outcome = OUTCOME_UNANSWERED;
	else
		x->outcome = OUTCOME_ABORTED;
	return 0;
}

static __always_inline __u8 excluded_as(__u8 conn_class)
{
	switch (conn_class) {
	case CLASS_SETUP:
		return EXCLUDED_SETUP;
	case CLASS_TEARDOWN:
		return EXCLUDED_TEARDOWN;
	case CLASS_ONEWAY:
		return EXCLUDED_ONEWAY;
	case CLASS_STREAMING:
		return EXCLUDED_STREAMING;
	case CLASS_PIPELINED:
		return EXCLUDED_PIPELINED;
	case CLASS_MULTIPLEXED:
		return EXCLUDED_MULTIPLEXED;
	case CLASS_PUSH:
		return EXCLUDED_PUSH;
	}
	return EXCLUDED_NONE;
}

/* The client left at once and has not looked for an answer, though bytes came: two goodbyes that crossed. */
static __always_inline bool ignored(const struct connection *c, const struct exchange *x, __u64 now_ns)
{
	return x->role == ROLE_CLIENT && x->flags & FLAG_CLOSED && !c->waited && !was_read(x) &&
	       (__s64)(now_ns - x->send_start_ns) < TEARDOWN_NS;
}

/* 1 for a request that was rather many messages, else 0; without a branch, which the verifier would follow both ways. */
static __always_inline __u64 is_dribble(const struct connection *c, const struct exchange *x)
{
	return (LULLS * c->pause_ns - c->lulls_ns - 1) >> 63 & (x->request_bytes - DRIBBLED(c->lulls_ns)) >> 63;
}

/* Judge the turn that ends. `next`: the phase that follows, PHASE_IDLE at the end of the connection or when idle. */
static __always_inline void judge(struct connection *c, struct exchange *x, __u8 next, __u64 now_ns)
{
	bool unasked = c->phase == PHASE_PUSH || c->phase == PHASE_REPLY, answered = c->phase != PHASE_REQUEST;
	bool greeting = unasked && !c->talked;
	__u8 what = 0;

	if (greeting)
		what = CLASS_SETUP;
	else if (unasked)
		what = CLASS_PUSH;
	else if (c->phase == PHASE_RESPONSE && next == PHASE_PUSH)
		what = CLASS_STREAMING;
	else if (!answered && next == PHASE_REQUEST)
		what = CLASS_ONEWAY;
	else if (!answered)
		what = unanswered(c, x, now_ns);
	else if (ignored(c, x, now_ns))
		what = CLASS_TEARDOWN;
	x->flags |= FLAG_OVERLAP & (0 - is_dribble(c, x));
	if (!what && c->refused)
		x->outcome = c->refused;
	c->initiative = what == CLASS_STREAMING || (what == CLASS_PUSH && !c->cut && !c->resuming) ||
			(what == CLASS_ONEWAY && x->flags & FLAG_REQUEST_RESUMED);
	resume(c, what == CLASS_STREAMING, next == PHASE_PUSH);
	remember_turn(c, !unasked && c->setup_turns);
	doubt(c);
	if (what == CLASS_ONEWAY)
		c->one_way = 1;
	c->cut = what == CLASS_STREAMING;
	if (!unasked && c->setup_turns) {
		c->setup_turns--;
		what = CLASS_SETUP;
	} else if (greeting && !c->setup_turns) {
		c->setup_turns = 1; /* the turn that answers a greeting */
	}
	x->conn_class = what ?: classify(c, x);
	x->conn_class ^= (x->conn_class ^ CLASS_TEARDOWN) & (0 - c->farewell);
	x->excluded = excluded_as(*(volatile __u8 *)&x->conn_class); /* as in enter() */
	if (x->outcome != OUTCOME_OK)
		fail(x, answered, end_seen_ns(c, x, now_ns));
	if (c->own)
		x->excluded = EXCLUDED_OWN;
	else if (c->peer)
		x->conn_class = CLASS_PEER, x->excluded = EXCLUDED_PEER;
	else if (c->first_excluded)
		x->excluded = c->first_excluded;
	else if (!x->excluded && x->flags & FLAG_OVERLAP)
		x->excluded = EXCLUDED_OVERLAP;
}

#endif
