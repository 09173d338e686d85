/* SPDX-License-Identifier: GPL-2.0 */
/*
 * exchange_sending.bpf.h: the send calls of one connection: where they begin and end, and whose message they write. As
 * in exchange_connection.bpf.h, every function runs under the connection's lock.
 *
 * The kernel skips a tracing program on a processor where another thread is inside it. So a call may begin or return
 * unseen. The next firing shows it: more is written than the calls that are known account for.
 */
#ifndef LATENCYPROBE_EXCHANGE_SENDING_BPF_H
#define LATENCYPROBE_EXCHANGE_SENDING_BPF_H

#include "exchange_connection.bpf.h"

/* The send call in progress returned at `ns`. True: the previous exchange waited for it and is in `ended`. */
static __always_inline bool finish_send(struct connection *c, __u64 ns, bool wrote, __u32 flags)
{
	__u8 owner = c->send_owner;

	c->send_owner = SEND_NONE;
	if (owner == SEND_PREVIOUS && c->previous_used) {
		c->previous.send_end_ns = ns;
		c->previous.send_calls++;
		c->previous.flags |= flags;
		c->previous_used = 0;
		return give(c, &c->previous);
	}
	if (owner == SEND_CURRENT && wrote) {
		c->current.send_end_ns = ns;
		c->current.send_calls++;
		c->current.flags |= flags;
	}
	return false;
}

/* The same for one whose return was not seen, only what came after it: it ended soon after it last wrote. */
static __always_inline bool end_unseen_send(struct connection *c, const struct view *v)
{
	if (c->send_owner != SEND_NONE)
		advance_out(c, (__s32)(v->written - c->send_until) < 0 ? v->written : c->send_until);
	return finish_send(c, c->send_ns, true, FLAG_SEND_APPROX);
}

/* More was written than by the calls that were seen to begin. */
static __always_inline bool wrote_unseen(const struct connection *c, const struct view *v)
{
	return (__s32)(v->written - (c->send_owner == SEND_NONE ? c->out_seq : c->send_until)) > 0;
}

/* Is this the call that is known to be in progress? The hook of its beginning fires once per skb. */
static __always_inline bool is_same_send(const struct connection *c, __u64 pid_tgid, __u32 until)
{
	return c->send_owner != SEND_NONE && c->send_tid == (__u32)pid_tgid && c->send_until == until;
}

/* It writes on: past an answer that has come meanwhile, or one whose next request has come meanwhile. */
static __always_inline void continue_send(struct connection *c, const struct view *v)
{
	c->send_ns = v->now_ns;
	if (c->send_owner == SEND_PREVIOUS && (__s32)(v->written - c->out_seq) > 0) {
		c->early_history |= 1;
		c->clean_turns = 0;
		c->previous.flags |= FLAG_OVERLAP;
		if (!c->previous.excluded)
			c->previous.excluded = EXCLUDED_OVERLAP;
		c->current.flags |= FLAG_OVERLAP;
	}
	if (c->phase == PHASE_RESPONSE && c->current.role == ROLE_CLIENT)
		come_late(c, v, c->out_seq);
	advance_out(c, v->written);
	bytes_move(c, v);
}

/*
 * A send call writes at v->written (the socket is locked, but for calls that are known by their return only) and will
 * have written all at `until`. What is written there and was not seen is its own, or of its message. No other call is in
 * progress. True: as end_exchange().
 */
static __always_inline bool begin_send(struct connection *c, const struct view *v, __u64 pid_tgid, __u32 until)
{
	struct exchange *x = &c->current;
	bool unread = v->received != v->copied, began, emit;

	if (x->role == ROLE_CLIENT) {
		if (unread && c->phase == PHASE_RESPONSE)
			c->unread = 1;
		emit = ask(c, v, c->out_seq, unread, true, &began);
	} else {
		emit = answer(c, v, c->out_seq, c->out_offset, unread, &began);
		c->hasty = unread;
		if (began && unread && c->phase == PHASE_RESPONSE)
			c->unread = 1;
	}
	/* a call that wrote nothing (EAGAIN) opened the message too early: its first real write is the start */
	if (began || (!x->send_calls && c->out_seq == (x->role == ROLE_CLIENT ? x->request_seq : x->response_seq))) {
		x->send_start_ns = v->now_ns;
		x->writer_tgid = pid_tgid >> 32;
		x->writer_tid = pid_tgid;
	}
	if (wrote_unseen(c, v))
		x->flags |= FLAG_SEND_APPROX;
	advance_out(c, v->written);
	c->send_owner = SEND_CURRENT;
	c->send_tid = pid_tgid;
	c->send_until = until;
	c->send_ns = v->now_ns;
	bytes_move(c, v);
	return emit;
}

/* The send call in progress returned. True: as finish_send(). */
static __always_inline bool end_send(struct connection *c, const struct view *v, bool wrote)
{
	advance_out(c, v->written);
	if (wrote)
		bytes_move(c, v);
	return finish_send(c, v->now_ns, wrote, 0);
}

/* A call that no hook saw wrote what is written now; no other is in progress. True: as end_exchange(). */
static __always_inline bool send_unseen(struct connection *c, struct view *v)
{
	__u32 received = v->received;
	bool emit;

	if (!wrote_unseen(c, v)) {
		advance_out(c, v->written);
		return false;
	}
	v->received = c->in_seq; /* what has come by now had not come then */
	emit = begin_send(c, v, 0, v->written);
	v->received = received;
	finish_send(c, v->now_ns, true, FLAG_SEND_APPROX);
	return emit;
}

#endif
