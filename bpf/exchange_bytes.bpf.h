/* SPDX-License-Identifier: GPL-2.0 */
/*
 * exchange_bytes.bpf.h: the bodies of the hooks at which bytes of a connection move: a send call begins or returns,
 * data is ready, a receive call has returned.
 */
#ifndef LATENCYPROBE_EXCHANGE_BYTES_BPF_H
#define LATENCYPROBE_EXCHANGE_BYTES_BPF_H

#include <bpf/bpf_helpers.h>
#include "events.h"
#include "kernel.h"
#include "maps.bpf.h"
#include "exchange_decide.bpf.h"
#include "exchange_notes.bpf.h"

/*
 * Each hook has two functions: on_* finds the connection, and one that is never inline works on it. In one frame they
 * would not fit, with all that they call, into the 512 bytes that kernels before 6.13 give to a program.
 */
/* What was not seen before a send call: the return of another, an arrival, a read. False: the lock was lost. */
static __always_inline bool catch_up(struct connection *c, struct view *v)
{
	if (!publish(c, end_unseen_send(c, v)) || !publish(c, arrive_unseen(c, v)))
		return false;
	take_unseen(c, v);
	return true;
}

static __noinline void send_begins(struct sock *sk, struct tcp_sock *tp, struct connection *c, __u32 left)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid();
	struct view v;
	bool ended;

	read_view(sk, tp, &v);
	if (!lock_settled(c))
		return;
	if (is_same_send(c, pid_tgid, v.written + left)) {
		continue_send(c, &v);
		ended = false;
	} else {
		if (!catch_up(c, &v))
			return;
		count_lull(c, &v, ROLE_CLIENT, left);
		ended = begin_send(c, &v, pid_tgid, v.written + left);
	}
	unlock_connection(c);
	if (ended)
		c->peer_overlaps = account_ended(c);
	if (c->phase == PHASE_LATE && c->current.role == ROLE_CLIENT)
		tell_late(c, v.written + left);
}

/*
 * tcp_sendmsg_locked: the `left` bytes of the call are not in write_seq yet; the socket is locked. The tracepoint fires
 * once per skb. True: of a server half.
 */
static __always_inline bool on_send_start(struct sock *sk, __u32 left)
{
	struct config *cfg = get_config();
	struct connection *c = cfg ? connection_of(sk, SENDING, cfg) : NULL;
	struct tcp_sock *tp = c ? tcp_sock_of(sk) : NULL;

	if (!tp)
		return false;
	send_begins(sk, tp, c, left);
	return c->current.role == ROLE_SERVER;
}

static __noinline void send_returns(struct sock *sk, struct tcp_sock *tp, struct connection *c, int ret)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid();
	__u32 written = tp->write_seq;
	bool ended = false;
	struct view v;

	if (ret > 0 && (__s32)(written - tp->snd_nxt) > 0)
		note_unsent(c, tp, written);
	if (ret > 0 && returns_as_expected(c, pid_tgid, written)) {
		note_return(c, pid_tgid, written, now_ns());
		return;
	}
	read_view(sk, tp, &v);
	if (!lock_settled(c))
		return;
	if (ret > 0 && wrote_unseen(c, &v)) {
		if (!catch_up(c, &v))
			return;
		ended = begin_send(c, &v, pid_tgid, v.written);
	}
	/*
	 * Of two threads' calls the later is in progress: the earlier one's end was taken as unseen when it began. After
	 * begin_send no previous exchange waits, and end_send only stamps.
	 */
	if (c->send_owner == SEND_NONE || c->send_tid == (__u32)pid_tgid)
		ended |= end_send(c, &v, ret > 0);
	unlock_connection(c);
	if (ended)
		account_ended(c);
}

/* sock_send_length: a send call returned; the socket is not locked, so only single fields of it are read. */
static __always_inline int on_send_end(struct sock *sk, int ret)
{
	struct config *cfg = get_config();
	struct connection *c = cfg ? connection_of(sk, UNLOCKED, cfg) : NULL;
	struct tcp_sock *tp = c ? tcp_sock_of(sk) : NULL;

	if (tp)
		send_returns(sk, tp, c, ret);
	return 0;
}

/*
 * Sends that no hook saw, before an arrival. A function of its own: the verifier would follow each way through it into
 * each way of the arrival.
 */
static __noinline void catch_up_sends(struct sock *sk, struct tcp_sock *tp, struct connection *c)
{
	struct view v;
	bool ended;

	read_view(sk, tp, &v);
	if (!lock_settled(c))
		return;
	if (wrote_unseen(c, &v) && !publish(c, end_unseen_send(c, &v)))
		return;
	ended = send_unseen(c, &v);
	unlock_connection(c);
	if (ended)
		account_ended(c);
}

static __noinline void bytes_arrive(struct sock *sk, struct tcp_sock *tp, struct connection *c,
				    const struct config *cfg)
{
	struct view v;
	bool ended;

	if (is_taken_over(sk, tp)) {
		drop(c, cfg, EXCLUDED_UNSUPPORTED); /* since it was decided */
		return;
	}
	read_positions(sk, tp, &v);
	v.now_ns = as_boot_ns(tp->tcp_clock_cache); /* TCP has just looked, at the segment */
	if (sk->sk_lock.owned)
		v.flags |= FLAG_BACKLOG;
	if (sk->sk_rcvlowat > 1)
		v.flags |= FLAG_LOWAT;
	if (!tp->rcv_wnd)
		v.flags |= FLAG_RECEIVER_LIMITED;
	if (!lock_settled(c))
		return;
	advance_out(c, v.written);
	count_lull(c, &v, ROLE_SERVER, v.received - c->in_seq);
	ended = arrive(c, &v, v.received);
	if (sk->__sk_common.skc_flags & SOCK_DONE_BIT && !c->fin_ns)
		c->fin_ns = v.now_ns;
	unlock_connection(c);
	if (ended)
		account_ended(c);
}

/* sk_data_ready: in-order bytes (or a FIN) arrived; softirq with the socket locked, or its owner in release_sock. */
static __always_inline int on_ready(struct sock *sk)
{
	struct config *cfg = get_config();
	struct connection *c = cfg ? connection_of(sk, LOCKED, cfg) : NULL;
	struct tcp_sock *tp = c ? tcp_sock_of(sk) : NULL;

	if (!tp)
		return 0;
	/* our FIN makes it true as well: looked at again with the lock */
	if ((__s32)(tp->write_seq - (c->send_owner == SEND_NONE ? c->out_seq : c->send_until)) > 0)
		catch_up_sends(sk, tp, c);
	bytes_arrive(sk, tp, c, cfg);
	return 0;
}

static __noinline void read_returns(struct sock *sk, struct tcp_sock *tp, struct connection *c)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid();
	bool ended, asks = c->current.role == ROLE_CLIENT;
	struct reading reading = { .pid_tgid = pid_tgid, .calls = 1 };
	struct view v;

	if (asks)
		c->waited = 1;
	if (!(asks && c->refused) && !(is_sending(c) && READ_ONCE(c->send_tid) == (__u32)pid_tgid)) {
		__u32 copied = tp->copied_seq;

		if ((__s32)(copied - known_read_seq(c)) <= 0)
			return; /* EAGAIN, or a peek: servers read until there is no more */
		if ((__s32)(copied - READ_ONCE(c->in_seq)) <= 0) {
			note_read(c, copied, pid_tgid, now_ns());
			return;
		}
	}
	read_view(sk, tp, &v);
	if (!lock_settled(c))
		return;
	reading.first_ns = reading.last_ns = v.now_ns;
	reading.copied = v.copied;
	if (c->send_tid == (__u32)pid_tgid && !publish(c, end_unseen_send(c, &v)))
		return; /* that was this thread's */
	ended = arrive_unseen(c, &v);
	take(c, &reading);
	if (asks && c->refused && !ended) {
		c->current.flags |= FLAG_CLOSED;
		c->current.outcome = c->refused; /* it does want an answer */
		ended = end_last_exchange(c, &v);
	}
	unlock_connection(c);
	if (ended)
		account_ended(c);
}

/*
 * sock_recv_length: a receive call returned; it counts only by the movement of copied_seq. Socket not locked. True: of a
 * server half.
 */
static __always_inline bool on_read(struct sock *sk)
{
	struct config *cfg = get_config();
	struct connection *c = cfg ? connection_of(sk, UNLOCKED, cfg) : NULL;
	struct tcp_sock *tp = c ? tcp_sock_of(sk) : NULL;

	if (!tp)
		return false;
	read_returns(sk, tp, c);
	return c->current.role == ROLE_SERVER;
}

#endif
