/* SPDX-License-Identifier: GPL-2.0 */
/*
 * exchange_connection.bpf.h: the state machine of one connection, docs/design/measurement.md, "State machine". Every
 * function here runs under the connection's lock, on values read before it: no clock, no map, no ring. A finished
 * exchange is copied to `ended`, which the hook accounts and emits after unlocking.
 *
 * Positions in the two byte streams are kept as the last sequence number seen and its 64-bit stream offset; each
 * hook first advances them, so that a missed firing costs one flagged stamp and never a wrong message.
 */
#ifndef LATENCYPROBE_EXCHANGE_CONNECTION_BPF_H
#define LATENCYPROBE_EXCHANGE_CONNECTION_BPF_H

#include <bpf/bpf_helpers.h>
#include "events.h"
#include "kernel.h"
#include "exchange_judge.bpf.h"
#include "exchange_turns.bpf.h"
#include "storage.bpf.h"

static __always_inline void advance_out(struct connection *c, __u32 written)
{
	__s32 fresh = written - c->out_seq;

	if (fresh > 0) {
		c->out_seq = written;
		c->out_offset += fresh;
	}
}

/* Of a request that went on after its answer had begun: the bytes since then. */
static __always_inline __u32 late_bytes(const struct connection *c)
{
	return (c->current.role == ROLE_SERVER ? c->in_seq : c->out_seq) - c->late_seq;
}

/* A turn opens whose first byte is the next of its side; of a request that comes late, c->late_seq. */
static __always_inline void open_exchange(struct connection *c, const struct view *v, __u8 phase)
{
	struct exchange *x = &c->current;
	bool late = c->phase == PHASE_LATE && phase == PHASE_RESPONSE;

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
	x->flags = c->talked || c->first_excluded ? 0 : FLAG_FRESH;
	if (c->phase == PHASE_REQUEST)
		x->flags |= FLAG_REQUEST_RESUMED;
	x->outcome = OUTCOME_OK;
	/* both, so that a message that never comes has length 0 */
	if (x->role == ROLE_SERVER) {
		x->request_seq = c->in_seq;
		x->response_seq = c->out_seq;
		x->request_offset = c->in_offset;
		x->response_offset = c->out_offset;
	} else {
		x->request_seq = c->out_seq;
		x->response_seq = c->in_seq;
		x->request_offset = c->out_offset;
		x->response_offset = c->in_offset;
	}
	if (late) {
		x->flags |= FLAG_OVERLAP;
		x->request_seq = c->late_seq;
		x->request_offset -= late_bytes(c);
		if (x->role == ROLE_SERVER)
			x->ready_first_ns = x->ready_last_ns = c->late_ns;
		else
			x->send_start_ns = x->send_end_ns = c->late_ns;
	}
	c->retransmits = v->tp->total_retrans;
	c->awoke = ((__u32)c->phase - 1) >> 31; /* PHASE_IDLE, without a branch */
	c->phase = phase;
	c->lulls_ns = 0;
	c->unread = 0;
	c->early = 0;
	c->waited = 0;
}

/* Give an ended turn out. False: the last one is still being accounted for, and this one is lost. */
static __always_inline bool give(struct connection *c, const struct exchange *x)
{
	if (c->ended_used) {
		c->overrun++;
		return false;
	}
	c->ended_used = 1;
	c->ended = *x;
	return true;
}

/*
 * End the open turn; `next`: the phase that follows. True: `ended` holds one to account for. When its last send call has
 * not returned yet it waits in `previous` instead, and what waited there (its send return was missed) is given out.
 */
static __always_inline bool end_exchange(struct connection *c, const struct view *v, __u8 next)
{
	struct exchange *x = &c->current;
	bool emit = false;

	if (c->phase == PHASE_IDLE)
		return false;
	if (x->role == ROLE_SERVER) {
		x->request_bytes = c->in_offset - x->request_offset;
		x->response_bytes = c->out_offset - x->response_offset;
	} else {
		x->request_bytes = c->out_offset - x->request_offset;
		x->response_bytes = c->in_offset - x->response_offset;
	}
	if (c->phase == PHASE_LATE && next == PHASE_RESPONSE)
		x->request_bytes -= late_bytes(c); /* they are those of the next */
	x->srtt_us = v->tp->srtt_us >> 3;
	x->rtt_min_us = v->tp->rtt_min.s[0].v;
	x->retransmits = resent_since(v->tp, c->retransmits);
	if (c->phase == PHASE_RESPONSE || c->phase == PHASE_LATE)
		c->turns++;
	judge(c, x, next, v->now_ns);
	c->first_excluded = EXCLUDED_NONE;
	if (x->role == ROLE_SERVER && c->send_owner == SEND_CURRENT) {
		if (c->previous_used)
			emit = give(c, &c->previous);
		c->previous = *x;
		c->previous_used = 1;
		c->send_owner = SEND_PREVIOUS;
		return emit;
	}
	return give(c, x);
}

/* The last turn of the connection, or of those before it was idle. True: as end_exchange(). */
static __always_inline bool end_last_exchange(struct connection *c, const struct view *v)
{
	bool emit = end_exchange(c, v, PHASE_IDLE);

	c->phase = PHASE_IDLE;
	return emit;
}

/* From `seq` on, the request goes on though its answer has begun. */
static __always_inline void come_late(struct connection *c, const struct view *v, __u32 seq)
{
	c->phase = PHASE_LATE;
	c->late_seq = seq;
	c->late_ns = v->now_ns;
	c->current.flags |= FLAG_OVERLAP;
}

/*
 * What bytes do to the open turn, as exchange_turns.bpf.h says. The step is read back from memory, where the verifier
 * forgets by which of many ways it came about. True: as end_exchange().
 */
static __always_inline bool enter(struct connection *c, const struct view *v)
{
	__u8 step = *(volatile __u8 *)&c->step, next = step & ~ENDS;
	bool emit = false;

	if (step & ENDS) {
		emit = end_exchange(c, v, next);
		if (next != PHASE_IDLE)
			open_exchange(c, v, next);
	}
	c->phase = next;
	return emit;
}

/* Bytes of the client begin at `seq`. Tells by `began` whether they are the first of a request. True: as end_exchange(). */
static __always_inline bool ask(struct connection *c, const struct view *v, __u32 seq, bool overtake, bool read,
				bool *began)
{
	struct exchange *x = &c->current;
	__u8 step;
	/* the server's FIN came with its last bytes: what the client says to that is its goodbye */
	bool goodbye = x->role == ROLE_CLIENT && c->fin_ns && c->phase != PHASE_REQUEST && server_spoke(c) &&
		       (__s64)(c->fin_ns - c->moved_ns) < (__s64)c->pause_ns;
	bool emit;

	c->stalled = 0;
	count_lull(c, v);
	keep_resuming(c, overtake);
	step = after_request_bytes(c, is_silent(c, v), overtake, read);
	if (step == PHASE_LATE && c->phase != PHASE_LATE)
		come_late(c, v, seq);
	c->step = step;
	emit = enter(c, v);
	*began = *(volatile __u8 *)&c->step & ENDS && c->phase != PHASE_IDLE;
	if (*began)
		c->goodbye = goodbye;
	c->talked = 1;
	return emit;
}

/* Bytes of the server begin at `seq`, `offset`. `overlap`: not all of the request was there. As ask(). */
static __always_inline bool answer(struct connection *c, const struct view *v, __u32 seq, __u64 offset, bool overlap,
				   bool *began)
{
	struct exchange *x = &c->current;
	bool silent = is_silent(c, v), emit;
	__u8 before = c->phase, step = after_response_bytes(c, silent);

	keep_resuming(c, silent | overlap);
	c->step = step;
	emit = enter(c, v);
	c->resuming |= (0 - c->stalled) & CLEAN_TURNS;
	c->stalled = 0;
	*began = *(volatile __u8 *)&c->step & ENDS || before == PHASE_REQUEST;
	if (*began) {
		x->response_seq = seq;
		x->response_offset = offset;
		if (overlap && c->phase == PHASE_RESPONSE)
			x->flags |= FLAG_OVERLAP;
	}
	return emit;
}

/*
 * Bytes up to sequence number `upto` have arrived. A peer that takes turns has all of our message before it sends its
 * own, and the acknowledgement in each of its segments shows what it had.
 */
static __always_inline bool arrive(struct connection *c, const struct view *v, __u32 upto)
{
	struct exchange *x = &c->current;
	bool early = (__s32)(v->acked - c->out_seq) < 0, began, emit;
	__s32 fresh = upto - c->in_seq;

	if (fresh <= 0)
		return false;
	if (x->role == ROLE_SERVER) {
		if (early && c->phase == PHASE_RESPONSE)
			c->early = 1;
		emit = ask(c, v, c->in_seq, early || c->hasty, (__s32)(v->copied - c->in_seq) >= 0, &began);
	} else {
		emit = answer(c, v, c->in_seq, c->in_offset, early, &began);
		if (began && early && c->phase == PHASE_RESPONSE)
			c->early = 1;
	}
	if (began)
		x->ready_first_ns = v->now_ns;
	if (c->phase != PHASE_LATE)
		x->ready_last_ns = v->now_ns;
	x->flags |= v->flags;
	c->in_seq = upto;
	c->in_offset += fresh;
	bytes_move(c, v);
	return emit;
}

/* Bytes were read whose arrival was not seen. True: as end_exchange(). */
static __always_inline bool arrive_unseen(struct connection *c, struct view *v)
{
	if ((__s32)(v->copied - c->in_seq) <= 0)
		return false;
	v->flags = FLAG_READY_APPROX;
	v->acked = c->out_seq; /* what the peer had then is not known any more */
	return arrive(c, v, v->copied);
}

/* The message of the open turn that this end receives is the one that is under way. */
static __always_inline bool is_inbound(const struct connection *c)
{
	if (c->current.role == ROLE_SERVER)
		return c->phase == PHASE_REQUEST;
	return c->phase == PHASE_RESPONSE || c->phase == PHASE_LATE || c->phase == PHASE_PUSH;
}

/* Receive calls that have returned, `calls` of them. */
struct reading {
	__u64 first_ns;
	__u64 last_ns;
	__u64 pid_tgid; /* of the last one */
	__u32 copied;	/* up to here bytes were read */
	__u32 calls;
};

/* Bytes moved at `ns`, which may be told late. */
static __always_inline void move_at(struct connection *c, __u64 ns)
{
	if ((__s64)(ns - c->moved_ns) > 0)
		c->moved_ns = ns;
	if ((__s64)(ns - c->last_ns) > 0)
		c->last_ns = ns;
}

/* Stamps belong to the message that is inbound now. */
static __always_inline void take(struct connection *c, const struct reading *reading)
{
	struct exchange *x = &c->current;

	if ((__s32)(reading->copied - c->read_seq) <= 0)
		return;
	c->read_seq = reading->copied;
	move_at(c, reading->last_ns);
	if (!is_inbound(c))
		return;
	if (!x->read_first_ns)
		x->read_first_ns = reading->first_ns;
	x->read_last_ns = reading->last_ns;
	x->recv_calls += reading->calls;
	x->reader_tgid = reading->pid_tgid >> 32;
	x->reader_tid = reading->pid_tgid;
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
	if (!is_inbound(c))
		return;
	x->flags |= FLAG_READ_APPROX;
	if (x->role == ROLE_SERVER)
		x->read_last_ns = v->now_ns;
}

#endif
