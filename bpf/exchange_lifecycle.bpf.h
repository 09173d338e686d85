/* SPDX-License-Identifier: GPL-2.0 */
/*
 * exchange_lifecycle.bpf.h: the bodies of the hooks at which a connection begins, closes, goes or is idle; they end
 * what is still open. Two functions per hook, as in exchange_bytes.bpf.h.
 */
#ifndef LATENCYPROBE_EXCHANGE_LIFECYCLE_BPF_H
#define LATENCYPROBE_EXCHANGE_LIFECYCLE_BPF_H

#include <bpf/bpf_helpers.h>
#include "events.h"
#include "kernel.h"
#include "maps.bpf.h"
#include "exchange_decide.bpf.h"
#include "exchange_notes.bpf.h"

/* No send call is in progress any more: emit what waits for one, and what an unseen one ends. */
static __noinline void end_sending(struct connection *c, struct view *v)
{
	if (lock_settled(c) && publish(c, end_unseen_send(c, v))) {
		bool ended = send_unseen(c, v);

		unlock_connection(c);
		if (ended)
			account_ended(c);
	}
	RETURN_NOTHING;
}

static __always_inline bool is_soon_after(__u64 ns, __u64 before_ns)
{
	return (__s64)(ns - before_ns) < TEARDOWN_NS;
}

/* A bit for each length of fewer than 64 bytes, and of those from there on. */
#define ALERT_LENGTHS (1ULL << 16 | 1ULL << 23 | 1ULL << 24 | 1ULL << 31 | 1ULL << 53 | 1ULL << 57)
#define ALERT_LENGTHS_FROM_64 (1ULL << (69 - 64) | 1ULL << (85 - 64))

/*
 * `bytes` are those of one encrypted alert of TLS, header of 5 bytes included: of its 2 bytes and 8 or 16 of tag, and in
 * TLS 1.3 one of type (RFC 8446, 5.2), in TLS 1.2 8 of nonce unless by ChaCha20 (RFC 5246, 6.2.3.3; RFC 7905); of AES-CBC,
 * IV, padding and MAC, encrypted or behind (RFC 5246, 6.2.3.2; RFC 7366).
 */
static __always_inline bool is_alert(__u64 bytes)
{
	if (bytes >= 128)
		return false;
	return (bytes < 64 ? ALERT_LENGTHS >> bytes : ALERT_LENGTHS_FROM_64 >> (bytes - 64)) & 1;
}

/*
 * In TLS, the last turn is a goodbye if what answers is an alert: the answer to close_notify, of its length, or at the
 * server to what the client left with, or to what made the server leave first (PostgreSQL: Terminate).
 */
static __always_inline bool answers_goodbye(const struct connection *c, __u64 now_ns)
{
	const struct exchange *x = &c->current;
	bool serves = x->role == ROLE_SERVER;
	__u64 asked = (serves ? c->in_offset : c->out_offset) - x->request_offset;
	__u64 answered = (serves ? c->out_offset : c->in_offset) - x->response_offset;

	if (!c->tls || !c->turns || c->setup_turns || !is_alert(answered))
		return false;
	if (serves && c->fin_ns <= x->send_start_ns && !(x->flags & FLAG_SEND_APPROX) &&
	    is_soon_after(c->fin_ns ?: now_ns, x->ready_last_ns))
		return true;
	return asked == answered && is_soon_after(now_ns, c->last_ns);
}

/* Nobody had asked on an idle connection, and the server's FIN follows: its goodbye. */
static __always_inline bool says_goodbye(const struct connection *c, __u64 now_ns)
{
	const struct exchange *x = &c->current;

	if (!c->awoke || !c->talked)
		return false;
	if (x->role == ROLE_SERVER)
		return is_soon_after(now_ns, x->send_start_ns);
	return c->fin_ns && is_soon_after(c->fin_ns, x->ready_last_ns);
}

static __always_inline bool is_farewell(const struct connection *c, __u64 now_ns)
{
	if (c->phase == PHASE_RESPONSE)
		return answers_goodbye(c, now_ns);
	return (c->phase == PHASE_PUSH || c->phase == PHASE_REPLY) && says_goodbye(c, now_ns);
}

static __noinline void end_open_exchange(struct connection *c, struct view *v, __u32 outcome)
{
	if (lock_connection(c)) {
		bool ended = false;

		take_unseen(c, v);
		if (c->phase != PHASE_IDLE) {
			c->current.flags |= FLAG_CLOSED;
			c->current.outcome = outcome;
			c->farewell = is_farewell(c, v->now_ns);
			if (c->phase == PHASE_REQUEST)
				c->current.flags |= dribbled(c);
			ended = end_last_exchange(c, v);
		}
		unlock_connection(c);
		if (ended)
			account_ended(c);
	}
	RETURN_NOTHING;
}

/* What a sender has under way at once without any acknowledgement: 10 segments, RFC 6928. */
#define SMALL_BYTES 14600

/* What a change of state does to the open exchange. */
enum leaving {
	STAYS = 0,
	WAITS = 1, /* for what shows whether an answer was wanted */
	ENDS_NOW = 2,
};

/*
 * This end sends its FIN. shutdown(SHUT_WR) leaves the answer to come; close() does not. Whether a server that closes
 * without an answer has failed is told by the client's FIN, or by its absence when the socket ends.
 */
static __always_inline enum leaving leave(const struct sock *sk, struct connection *c, bool fin_came)
{
	bool serves = c->current.role == ROLE_SERVER;

	if (fin_came)
		return ENDS_NOW;
	c->half_closed = serves;
	if (serves && c->phase == PHASE_REQUEST)
		return WAITS;
	return sk->sk_shutdown & RCV_SHUTDOWN ? ENDS_NOW : STAYS;
}

/*
 * The answer has left, and was acknowledged, or would be soon: whoever reads it and resets the connection, as checks of
 * health do, is faster than a delayed acknowledgement.
 */
static __always_inline bool is_sent(const struct connection *c, const struct view *v)
{
	__s32 unacked = c->out_seq - v->acked;

	return unacked <= 0 ||
	       (unacked <= SMALL_BYTES && c->send_owner == SEND_NONE && (__s64)(v->now_ns - c->moved_ns) < TEARDOWN_NS);
}

/* The socket closes, maybe by an error, which `outcome` receives. */
static __always_inline enum leaving end_socket(const struct sock *sk, struct connection *c, const struct view *v,
					       int oldstate, __u32 *outcome)
{
	bool serves = c->current.role == ROLE_SERVER;

	*outcome = c->close_ns ? OUTCOME_OK : outcome_of(sk->sk_err);
	/* an answer that is complete for this end is no failure, whatever came after it */
	if (c->phase > PHASE_REQUEST && (serves ? is_sent(c, v) : v->received == v->copied))
		*outcome = OUTCOME_OK;
	if (*outcome == OUTCOME_RESET && c->phase != PHASE_IDLE && !serves && !c->waited) {
		c->refused = OUTCOME_RESET; /* a goodbye that came too late? */
		return WAITS;
	}
	if (c->phase > PHASE_REQUEST) {
		if (!*outcome && v->received != v->copied)
			return STAYS; /* what has arrived may still be read: destroy ends it */
	} else if (!*outcome && c->phase == PHASE_REQUEST && oldstate == TCP_ESTABLISHED && !serves) {
		*outcome = OUTCOME_ABORTED; /* no FIN of anybody: this end has sent a RST */
	}
	return ENDS_NOW;
}

/* What is noted belongs to the time before the state changes. */
static __noinline void settle(struct connection *c)
{
	if (lock_settled(c))
		unlock_connection(c);
	RETURN_NOTHING;
}

/* The connection leaves, or a closed socket begins anew: what does that to the exchange that is open? */
static __always_inline void change_state(struct sock *sk, struct tcp_sock *tp, const struct config *cfg, int oldstate,
					 int newstate)
{
	struct connection *c = measured(sk, cfg);
	enum leaving leaving = STAYS;
	__u32 outcome = OUTCOME_OK;
	struct view v;
	__s32 closed;

	if (!c) {
		if (oldstate == TCP_CLOSE)
			renew_connection(sk);
		return;
	}
	read_view(sk, tp, &v);
	settle(c);
	if (sk->__sk_common.skc_flags & SOCK_DONE_BIT && !c->fin_ns)
		c->fin_ns = v.now_ns;
	if (newstate == TCP_FIN_WAIT1 || newstate == TCP_LAST_ACK)
		leaving = leave(sk, c, newstate == TCP_LAST_ACK);
	else if (newstate == TCP_CLOSE)
		leaving = end_socket(sk, c, &v, oldstate, &outcome);
	else if (oldstate == TCP_CLOSE || (newstate == TCP_CLOSING && c->close_ns))
		leaving = ENDS_NOW;
	if (leaving == STAYS)
		return;
	/* through memory, and all anew: the verifier forgets by which of many ways it came here */
	c->leaving = leaving;
	c->leaving_outcome = outcome;
	c = find_connection(sk);
	if (!c)
		return;
	read_view(sk, tp, &v);
	/* if it was closed, tcp_disconnect() has moved write_seq; without a branch, as less() */
	closed = ((sk->__sk_common.skc_state ^ TCP_CLOSE) - 1) >> 31;
	v.written = (v.written & ~closed) | (c->out_seq & closed);
	end_sending(c, &v);
	if (*(volatile __u8 *)&c->leaving == WAITS)
		c->close_ns = v.now_ns;
	else
		end_open_exchange(c, &v, *(volatile __u8 *)&c->leaving_outcome);
	if (sk->__sk_common.skc_state == TCP_CLOSE)
		renew_connection(sk);
}

/* inet_sock_set_state: fires before the state is written. */
static __always_inline int on_state(struct sock *sk, int oldstate, int newstate)
{
	struct config *cfg = get_config();
	struct connection *c;
	struct tcp_sock *tp;

	if (!cfg || !is_tcp(sk))
		return 0;
	if (oldstate == TCP_CLOSE || oldstate == TCP_LISTEN)
		forget_earlier(sk); /* it begins: a socket of its own, a listener, the copy of one */
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return 0;
	if (newstate == TCP_ESTABLISHED) {
		bool connected = oldstate == TCP_SYN_SENT;
		__u8 excluded = excluded_of_accepted(tp);

		/* a client's data in the SYN is acknowledged by now, unless the server refused it */
		if (connected)
			excluded = tp->write_seq != tp->snd_una || tp->bytes_acked > 1 ? EXCLUDED_TFO : EXCLUDED_NONE;
		c = find_connection(sk);
		if (!c || c->generation != NEVER_MEASURED)
			decide(sk, connected ? ROLE_CLIENT : ROLE_SERVER, excluded, LOCKED);
		return 0;
	}
	if (newstate == TCP_SYN_SENT) {
		/* the one moment of a client socket that is surely in its process's context */
		bool own = cfg->own_tgid && bpf_get_current_pid_tgid() >> 32 == cfg->own_tgid;

		c = own ? make_connection(sk) : find_connection(sk);
		if (c)
			c->own = own;
	}
	change_state(sk, tp, cfg, oldstate, newstate);
	if (newstate == TCP_FIN_WAIT1 || newstate == TCP_LAST_ACK || newstate == TCP_CLOSE)
		see_end(sk, false);
	return 0;
}

/* tcp_destroy_sock: the backstop, after which the socket and its storage go. */
static __always_inline int on_destroy(struct sock *sk)
{
	struct config *cfg = get_config();
	struct connection *c;
	struct tcp_sock *tp;
	struct view v;

	tp = bpf_skc_to_tcp_sock(sk);
	if (!cfg || !tp)
		return 0;
	c = measured(sk, cfg);
	if (c) {
		read_view(sk, tp, &v);
		v.written = c->out_seq; /* tcp_disconnect() has moved write_seq */
		end_sending(c, &v);
		end_open_exchange(c, &v, OUTCOME_OK);
		forget_verdict(c);
	}
	see_end(sk, true);
	forget_connection(sk);
	return 0;
}

static __noinline void end_if_idle(struct sock *sk, struct tcp_sock *tp, struct connection *c, const struct config *cfg)
{
	bool ended = false;
	__s64 quiet_ns;
	struct view v;

	read_view(sk, tp, &v);
	if ((__s32)(v.acked - v.written) < 0 || v.received != v.copied)
		return;
	if (!lock_settled(c))
		return;
	quiet_ns = v.now_ns - c->last_ns;
	/* without a receive call, as by splice: silence, which counts from when its reader was done, begins now at the latest */
	if (v.copied != c->read_seq && v.received == c->in_seq && quiet_ns >= (__s64)c->pause_ns) {
		take_unseen(c, &v);
		c->moved_ns = v.now_ns;
	}
	if (quiet_ns >= (__s64)cfg->idle_timeout_ns && quiet_ns >= (__s64)c->pause_ns && v.received == c->in_seq) {
		ended = end_unseen_send(c, &v);
		if (!ended && c->phase > PHASE_REQUEST) {
			c->current.flags |= FLAG_MAYBE_CUT;
			c->stalled = c->phase == PHASE_RESPONSE && c->clean_turns >= TRUSTED_TURNS;
			ended = end_last_exchange(c, &v);
		}
	}
	unlock_connection(c);
	if (ended)
		account_ended(c);
}

/* Once a second over all measured sockets of the machine: end what is complete and idle for config.idle_timeout_ns. */
static __always_inline int on_flush(struct sock *sk)
{
	struct config *cfg = get_config();
	struct connection *c;
	struct tcp_sock *tp;

	tp = bpf_skc_to_tcp_sock(sk);
	if (!cfg || !tp)
		return 0;
	c = measured(sk, cfg);
	if (c)
		end_if_idle(sk, tp, c, cfg);
	c = find_connection(sk); /* those of HTTP/2 too */
	if (c && c->followed)
		count_in_census(CENSUS_FOUND);
	return 0;
}

#endif
