// SPDX-License-Identifier: GPL-2.0
/*
 * exchange.bpf.c: stamps on request/response exchanges, docs/design/measurement.md. One body per logical event (on_*),
 * thin entry points per attach variant named <event>__<variant>; the loader attaches one variant of each event.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "kernel.h"
#include "events.h"
#include "maps.bpf.h"
#include "exchange_decide.bpf.h"
#include "exchange_sending.bpf.h"

/*
 * Each hook has two functions: on_* finds the connection, and one that is never inline works on it. In one frame they
 * would not fit, with all that they call, into the 512 bytes that kernels before 6.13 give to a program.
 */
static __noinline void send_begins(struct sock *sk, struct tcp_sock *tp, struct connection *c, __u32 left)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid();
	struct exchange out;
	struct view v;
	bool ended;

	read_view(sk, tp, &v);
	if (!lock_connection(c))
		return;
	ended = begin_send(c, &v, pid_tgid, v.written + left, &out);
	unlock_connection(c);
	if (ended)
		c->peer_overlaps = account(&out);
}

/*
 * tcp_sendmsg_locked: the `left` bytes of the call are not in write_seq yet; the socket is locked. The tracepoint fires
 * once per skb.
 */
static __always_inline int on_send_start(struct sock *sk, __u32 left)
{
	struct config *cfg = get_config();
	struct connection *c = cfg ? connection_of(sk, SENDING, cfg) : NULL;
	struct tcp_sock *tp = c ? bpf_skc_to_tcp_sock(sk) : NULL;

	if (tp)
		send_begins(sk, tp, c, left);
	return 0;
}

static __noinline void send_returns(struct sock *sk, struct tcp_sock *tp, struct connection *c, int ret)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid();
	struct exchange out;
	bool ended = false;
	struct view v;

	read_view(sk, tp, &v);
	if (!lock_connection(c))
		return;
	if (ret > 0 && wrote_unseen(c, &v))
		ended = begin_send(c, &v, pid_tgid, v.written, &out);
	/*
	 * Of two threads' calls the later is in progress: the earlier one's end was taken as unseen when it began. If
	 * begin_send gave an older exchange out, then no previous one waits, and end_send only stamps.
	 */
	if (c->send_owner == SEND_NONE || c->send_tid == (__u32)pid_tgid)
		ended |= end_send(c, &v, ret > 0, &out);
	unlock_connection(c);
	if (ended)
		account(&out);
}

/* sock_send_length: a send call returned; the socket is not locked, so only single fields of it are read. */
static __always_inline int on_send_end(struct sock *sk, int ret)
{
	struct config *cfg = get_config();
	struct connection *c = cfg ? connection_of(sk, UNLOCKED, cfg) : NULL;
	struct tcp_sock *tp = c ? bpf_skc_to_tcp_sock(sk) : NULL;

	if (tp)
		send_returns(sk, tp, c, ret);
	return 0;
}

static __noinline void bytes_arrive(struct sock *sk, struct tcp_sock *tp, struct connection *c,
				    const struct config *cfg)
{
	struct exchange out;
	struct view v;
	__u32 received;
	bool ended;

	if (is_taken_over(sk, tp)) {
		drop(c, cfg, EXCLUDED_UNSUPPORTED); /* since it was decided */
		return;
	}
	read_view(sk, tp, &v);
	received = v.received;
	if (sk->sk_lock.owned)
		v.flags |= FLAG_BACKLOG;
	if (sk->sk_rcvlowat > 1)
		v.flags |= FLAG_LOWAT;
	if (!tp->rcv_wnd)
		v.flags |= FLAG_RECEIVER_LIMITED;
	if (!lock_connection(c))
		return;
	ended = send_unseen(c, &v, &out);
	ended |= arrive(c, &v, received, &out);
	if (sk->__sk_common.skc_flags & SOCK_DONE_BIT && !c->fin_ns)
		c->fin_ns = v.now_ns;
	unlock_connection(c);
	if (ended)
		account(&out);
}

/* sk_data_ready: in-order bytes (or a FIN) arrived; softirq with the socket locked, or its owner in release_sock. */
static __always_inline int on_ready(struct sock *sk)
{
	struct config *cfg = get_config();
	struct connection *c = cfg ? connection_of(sk, LOCKED, cfg) : NULL;
	struct tcp_sock *tp = c ? bpf_skc_to_tcp_sock(sk) : NULL;

	if (tp)
		bytes_arrive(sk, tp, c, cfg);
	return 0;
}

static __noinline void read_returns(struct sock *sk, struct tcp_sock *tp, struct connection *c)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid();
	struct exchange out;
	bool ended = false;
	struct view v;

	/* EAGAIN, or a peek: servers read until there is no more */
	if ((__s32)(tp->copied_seq - c->read_seq) <= 0 && c->send_owner == SEND_NONE)
		return;
	read_view(sk, tp, &v);
	if (!lock_connection(c))
		return;
	if (c->send_tid == (__u32)pid_tgid)
		ended = end_unseen_send(c, &v, &out); /* this thread's */
	if (!ended)
		ended = arrive_unseen(c, &v, &out);
	take(c, &v, pid_tgid);
	unlock_connection(c);
	if (ended)
		account(&out);
}

/* sock_recv_length: a receive call returned; it counts only by the movement of copied_seq. Socket not locked. */
static __always_inline int on_read(struct sock *sk)
{
	struct config *cfg = get_config();
	struct connection *c = cfg ? connection_of(sk, UNLOCKED, cfg) : NULL;
	struct tcp_sock *tp = c ? bpf_skc_to_tcp_sock(sk) : NULL;

	if (tp)
		read_returns(sk, tp, c);
	return 0;
}

/* No send call is in progress any more: emit what waits for one, and what an unseen one ends. */
static __noinline void end_sending(struct connection *c, struct view *v)
{
	struct exchange out;
	bool ended;

	if (!lock_connection(c))
		return;
	ended = end_unseen_send(c, v, &out);
	unlock_connection(c);
	if (ended)
		account(&out);
	if (!lock_connection(c))
		return;
	ended = send_unseen(c, v, &out);
	unlock_connection(c);
	if (ended)
		account(&out);
}

static __noinline void end_open_exchange(struct connection *c, struct view *v, __u32 outcome)
{
	struct exchange out;
	bool ended = false;

	if (!lock_connection(c))
		return;
	take_unseen(c, v);
	if (c->phase != PHASE_IDLE) {
		c->current.flags |= FLAG_CLOSED;
		c->current.outcome = outcome;
		ended = end_exchange(c, v, &out);
	}
	unlock_connection(c);
	if (ended)
		account(&out);
}

/* The connection ends here. What is still open is emitted. */
static __always_inline void close_connection(struct connection *c, struct view *v, __u32 outcome)
{
	end_sending(c, v);
	end_open_exchange(c, v, outcome);
}

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

/* inet_sock_set_state: fires before the state is written. */
static __always_inline int on_state(struct sock *sk, int oldstate, int newstate)
{
	struct config *cfg = get_config();
	struct connection *c;
	struct tcp_sock *tp;
	__u32 outcome;
	struct view v;

	if (!cfg || !is_tcp(sk))
		return 0;
	if (oldstate == TCP_CLOSE || oldstate == TCP_LISTEN)
		forget_connection(sk); /* it begins: a socket of its own, a listener, the copy of one */
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return 0;
	if (newstate == TCP_ESTABLISHED) {
		/* data in the SYN: a client's is acknowledged by now, unless the server refused it; a server's came */
		bool fast_open = oldstate == TCP_SYN_SENT ? tp->write_seq != tp->snd_una || tp->bytes_acked > 1
							  : tp->bytes_received;

		c = find_connection(sk);
		if (!c || c->generation != NEVER_MEASURED)
			decide(sk, oldstate == TCP_SYN_SENT ? ROLE_CLIENT : ROLE_SERVER,
			       fast_open ? EXCLUDED_TFO : EXCLUDED_NONE, LOCKED);
		return 0;
	}
	if (newstate == TCP_SYN_SENT) {
		/* the one moment of a client socket that is surely in its process's context */
		if (cfg->own_tgid && bpf_get_current_pid_tgid() >> 32 == cfg->own_tgid) {
			c = make_connection(sk);
			if (c)
				c->own = 1;
		}
		return 0;
	}
	c = measured(sk, cfg);
	if (!c)
		return 0;
	read_view(sk, tp, &v);
	switch (newstate) {
	case TCP_CLOSE_WAIT:
	case TCP_CLOSING:
		c->fin_ns = v.now_ns;
		return 0;
	case TCP_FIN_WAIT1:
	case TCP_LAST_ACK:
		/* shutdown(SHUT_WR) leaves the answer to come; close() does not */
		if (newstate == TCP_LAST_ACK || sk->sk_shutdown & RCV_SHUTDOWN)
			close_connection(c, &v, OUTCOME_OK);
		return 0;
	case TCP_CLOSE:
		outcome = outcome_of(sk->sk_err);
		/* an answer that is complete for this end is no failure, whatever came after it */
		if (c->phase == PHASE_RESPONSE &&
		    (c->current.role == ROLE_SERVER ? (__s32)(v.acked - c->out_seq) >= 0 : v.received == v.copied))
			outcome = OUTCOME_OK;
		else if (!outcome && c->phase == PHASE_RESPONSE && v.received != v.copied)
			return 0; /* what has arrived may still be read: destroy ends it */
		else if (!outcome && c->phase == PHASE_REQUEST && oldstate == TCP_ESTABLISHED)
			outcome = OUTCOME_ABORTED; /* no FIN of anybody: this end has sent a RST */
		close_connection(c, &v, outcome);
		return 0;
	}
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
		close_connection(c, &v, OUTCOME_OK);
		forget_verdict(c);
	}
	forget_connection(sk);
	return 0;
}

static __noinline void end_if_idle(struct sock *sk, struct tcp_sock *tp, struct connection *c, const struct config *cfg)
{
	bool ended = false;
	struct exchange out;
	struct view v;

	read_view(sk, tp, &v);
	if ((__s32)(v.acked - v.written) < 0 || v.received != v.copied)
		return;
	if (!lock_connection(c))
		return;
	if ((__s64)(v.now_ns - c->last_ns) >= (__s64)cfg->idle_timeout_ns && v.received == c->in_seq) {
		ended = end_unseen_send(c, &v, &out);
		if (!ended && c->phase == PHASE_RESPONSE) {
			c->current.flags |= FLAG_MAYBE_CUT;
			ended = end_exchange(c, &v, &out);
		}
	}
	unlock_connection(c);
	if (ended)
		account(&out);
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
	return 0;
}

/* A send call of a TCP socket in a kernel without sock_send_length; UDP comes through the same functions. */
static __always_inline int on_send_return(struct socket *sock, int ret)
{
	struct sock *sk = sock->sk;

	return sk ? on_send_end(sk, ret) : 0;
}

/* A receive call in a kernel without sock_recv_length. */
static __always_inline int on_read_return(struct socket *sock)
{
	struct sock *sk = sock->sk;

	return sk ? on_read(sk) : 0;
}

SEC("tp_btf/tcp_sendmsg_locked")
int BPF_PROG(send_start__tp_btf, struct sock *sk, struct msghdr *msg)
{
	return on_send_start(sk, msg->msg_iter.count);
}

SEC("fentry/tcp_sendmsg_locked")
int BPF_PROG(send_start__fentry_sendpage__sendmsg, struct sock *sk, struct msghdr *msg)
{
	return on_send_start(sk, msg->msg_iter.count);
}

SEC("fentry/do_tcp_sendpages")
int BPF_PROG(send_start__fentry_sendpage__sendpages, struct sock *sk, void *page, int offset, __u64 size)
{
	return on_send_start(sk, size);
}

SEC("fentry/tcp_sendmsg_locked")
int BPF_PROG(send_start__fentry, struct sock *sk, struct msghdr *msg)
{
	return on_send_start(sk, msg->msg_iter.count);
}

SEC("tp_btf/sock_send_length")
int BPF_PROG(send_end__tp_btf, struct sock *sk, int ret)
{
	return on_send_end(sk, ret);
}

SEC("fexit/inet_sendmsg")
int BPF_PROG(send_end__fexit_sendpage__inet, struct socket *sock, struct msghdr *msg, unsigned long size, int ret)
{
	return on_send_return(sock, ret);
}

SEC("fexit/inet6_sendmsg")
int BPF_PROG(send_end__fexit_sendpage__inet6, struct socket *sock, struct msghdr *msg, unsigned long size, int ret)
{
	return on_send_return(sock, ret);
}

SEC("fexit/inet_sendpage")
int BPF_PROG(send_end__fexit_sendpage__sendpage, struct socket *sock, void *page, int offset, unsigned long size,
	     int flags, int ret)
{
	return on_send_return(sock, ret);
}

SEC("fexit/inet_sendmsg")
int BPF_PROG(send_end__fexit__inet, struct socket *sock, struct msghdr *msg, unsigned long size, int ret)
{
	return on_send_return(sock, ret);
}

SEC("fexit/inet6_sendmsg")
int BPF_PROG(send_end__fexit__inet6, struct socket *sock, struct msghdr *msg, unsigned long size, int ret)
{
	return on_send_return(sock, ret);
}

SEC("tp_btf/sk_data_ready")
int BPF_PROG(ready__tp_btf, struct sock *sk)
{
	return on_ready(sk);
}

SEC("fentry/sock_def_readable")
int BPF_PROG(ready__fentry, struct sock *sk)
{
	return on_ready(sk);
}

SEC("tp_btf/sock_recv_length")
int BPF_PROG(read__tp_btf, struct sock *sk)
{
	return on_read(sk);
}

SEC("fexit/inet_recvmsg")
int BPF_PROG(read__fexit__inet, struct socket *sock)
{
	return on_read_return(sock);
}

SEC("fexit/inet6_recvmsg")
int BPF_PROG(read__fexit__inet6, struct socket *sock)
{
	return on_read_return(sock);
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(state__tp_btf, struct sock *sk, int oldstate, int newstate)
{
	return on_state(sk, oldstate, newstate);
}

SEC("tp_btf/tcp_destroy_sock")
int BPF_PROG(destroy__tp_btf, struct sock *sk)
{
	return on_destroy(sk);
}

#ifndef CONNECTIONS_IN_HASH /* an iterator over a hash gives no socket */
SEC("iter/bpf_sk_storage_map")
int flush(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	struct sock *sk = ctx->sk;

	return sk ? on_flush(sk) : 0;
}
#endif

char LICENSE[] SEC("license") = "GPL";
