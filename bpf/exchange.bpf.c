// SPDX-License-Identifier: GPL-2.0
/*
 * exchange.bpf.c: stamps on request/response exchanges, measurement.md. One body per logical event (on_*), thin
 * entry points per attach variant named <event>__<variant>; the loader attaches one variant of each event.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "kernel.h"
#include "events.h"
#include "maps.bpf.h"
#include "flow.bpf.h"
#include "connection.bpf.h"
#include "sending.bpf.h"
#include "account.bpf.h"

/* States in which write_seq counts our FIN. A closed socket may have sent none, but it writes no more either. */
#define FIN_SENT (1 << TCP_FIN_WAIT1 | 1 << TCP_FIN_WAIT2 | 1 << TCP_CLOSING | 1 << TCP_LAST_ACK | 1 << TCP_CLOSE)

/* A FIN takes one sequence number of rcv_nxt and, once read, of copied_seq, ours of write_seq; it is no data. */
static __always_inline void read_view(const struct sock *sk, const struct tcp_sock *tp, struct view *v)
{
	__u32 fin = sk->__sk_common.skc_flags & SOCK_DONE_BIT ? 1 : 0;

	v->tp = tp;
	v->now_ns = bpf_ktime_get_boot_ns();
	v->received = tp->rcv_nxt - fin;
	v->copied = tp->copied_seq;
	if ((__s32)(v->copied - v->received) > 0)
		v->copied = v->received;
	v->written = tp->write_seq; /* before the state: the FIN comes after it */
	v->written -= FIN_SENT >> (sk->__sk_common.skc_state & 31) & 1;
	v->acked = tp->snd_una;
	v->flags = 0;
}

/* Positions now; right only while the socket is locked. Offsets: measurement.md section 6. */
static __always_inline void place(struct connection *c, const struct tcp_sock *tp, const struct view *v)
{
	c->in_seq = v->copied;
	c->read_seq = v->copied;
	c->out_seq = v->written;
	c->in_offset = tp->bytes_received - (__u32)(tp->rcv_nxt - v->copied);
	c->out_offset = tp->bytes_acked + (__u32)(v->written - tp->snd_una);
	if (c->current.role == ROLE_CLIENT)
		c->out_offset--; /* its SYN is in bytes_acked */
}

/*
 * This connection is not measured any more: what is open ends uncounted, under the old target set. One that cannot be
 * measured says so by an exchange of its own, once. False: its lock was not to be had.
 */
static __always_inline bool drop(struct connection *c, const struct config *cfg, __u8 why)
{
	bool tell, never = why == EXCLUDED_UNSUPPORTED;

	if (!lock_connection(c))
		return false;
	tell = c->target_set && (never || c->phase != PHASE_IDLE);
	c->target_set = 0;
	c->generation = never ? NEVER_WANTED : cfg->generation;
	c->phase = PHASE_IDLE;
	c->previous_used = 0;
	c->current.request_bytes = 0; /* those of an earlier exchange */
	c->current.response_bytes = 0;
	c->current.conn_class = never ? CLASS_UNSUPPORTED : CLASS_UNKNOWN;
	c->current.excluded = why;
	unlock_connection(c);
	forget_verdict(c);
	if (tell)
		account(&c->current);
	return true;
}

/*
 * The hook's hold of the socket. Locked or owned: its positions may be taken; else a connection that is not measured yet
 * waits for its next locked hook. Sending: so once per message at least, the one hook that counts where there is no room.
 */
enum hold {
	UNLOCKED = 0,
	LOCKED = 1,
	SENDING = 2,
};

/* Ask the plan about this socket and remember the answer. NULL: not measured. */
static __noinline struct connection *decide(struct sock *sk, __u8 role, __u8 first_excluded, enum hold hold)
{
	/* the generation first: with rules older than it the decision would outlive the plan that it came from */
	const struct config *cfg = get_config();
	__u64 generation = cfg ? cfg->generation : 0, cgroup_id = sock_cgroup_id(sk), cookie;
	const struct scope *scope = bpf_map_lookup_elem(&scopes, &cgroup_id);
	struct connection *c = find_connection(sk);
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	struct target_set *t;
	struct flow flow = {};
	struct view v;
	__u32 set, netns_ino;

	if (!cfg || !tp)
		return NULL;
	if (!scope)
		scope = &cfg->host;
	if (!scope->server_group && !scope->client_group) {
		if (c)
			drop(c, cfg, EXCLUDED_PLAN);
		return NULL;
	}
	if (c && c->current.local_port) {
		/* as it was when established: a closing socket has lost its port */
		__builtin_memcpy(flow.local_addr, c->current.local_addr, sizeof(flow.local_addr));
		__builtin_memcpy(flow.peer_addr, c->current.peer_addr, sizeof(flow.peer_addr));
		flow.local_port = c->current.local_port;
		flow.peer_port = c->current.peer_port;
		role = c->current.role;
	} else {
		read_flow(sk, &flow);
	}
	set = find_target(scope, &flow, &role);
	if (c && c->target_set && c->target_set == set) {
		c->generation = generation;
		return c;
	}
	if (c && !drop(c, cfg, EXCLUDED_PLAN))
		return NULL;
	if (hold == UNLOCKED)
		return NULL;
	c = make_connection(sk);
	if (!c) {
		if (set && hold == SENDING)
			count_lost(LOST_STORAGE);
		return NULL;
	}
	cookie = cookie_of(sk, c);
	netns_ino = sk->__sk_common.skc_net.net->ns.inum;
	t = bpf_map_lookup_elem(&target_sets, &set);
	read_view(sk, tp, &v);
	if (!lock_connection(c))
		return NULL;
	c->target_set = set;
	c->generation = generation;
	c->current.sock_cookie = cookie;
	c->current.cgroup_id = cgroup_id;
	c->current.netns_ino = netns_ino;
	c->current.target_set = set;
	c->current.role = role;
	__builtin_memcpy(c->current.local_addr, flow.local_addr, sizeof(flow.local_addr));
	__builtin_memcpy(c->current.peer_addr, flow.peer_addr, sizeof(flow.peer_addr));
	c->current.local_port = flow.local_port;
	c->current.peer_port = flow.peer_port;
	c->phase = PHASE_IDLE;
	c->send_owner = SEND_NONE;
	c->turns = 0;
	c->unread_history = 0;
	c->early_history = 0;
	c->clean_turns = 0;
	c->probation = 0;
	c->ambiguous = 0;
	c->told = 0;
	c->unasked = 0;
	/* an old connection has had its set-up turns */
	c->setup_turns = t && first_excluded != EXCLUDED_PARTIAL ? t->setup_turns : 0;
	c->first_excluded = first_excluded;
	place(c, tp, &v);
	unlock_connection(c);
	if (set && is_unsupported(sk, tp)) {
		drop(c, cfg, EXCLUDED_UNSUPPORTED);
		return NULL;
	}
	return set ? c : NULL;
}

/* What nearly every socket of a node pays for the few that are measured: one look at its cgroup. */
static __always_inline bool in_scope(const struct sock *sk, const struct config *cfg)
{
	__u64 cgroup_id;

	if (cfg->host.server_group || cfg->host.client_group)
		return true;
	cgroup_id = sock_cgroup_id(sk);
	return bpf_map_lookup_elem(&scopes, &cgroup_id);
}

/* The measured connection of a socket for hooks that adopt nothing, or NULL. */
static __always_inline struct connection *measured(struct sock *sk, const struct config *cfg)
{
	struct connection *c = find_connection(sk);

	if (!c)
		return NULL;
	if (c->generation == cfg->generation || c->generation == NEVER_WANTED)
		return c->target_set ? c : NULL;
	return decide(sk, ROLE_UNKNOWN, EXCLUDED_PARTIAL, UNLOCKED);
}

/* The same for all others. Nothing but TCP has storage of ours. */
static __always_inline struct connection *connection_of(struct sock *sk, enum hold hold, const struct config *cfg)
{
	struct connection *c = find_connection(sk);

	if (c && (c->generation == cfg->generation || c->generation == NEVER_WANTED))
		return c->target_set ? c : NULL;
	if (sk->__sk_common.skc_state != TCP_ESTABLISHED)
		hold = UNLOCKED;
	if (!c && (hold == UNLOCKED || !is_tcp(sk) || !in_scope(sk, cfg)))
		return NULL;
	return decide(sk, ROLE_UNKNOWN, EXCLUDED_PARTIAL, hold);
}

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
		c->told = account(&out);
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

/* No send call goes on any more: emit what waits for one, and what an unseen one ends. */
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
		/* data in the SYN: a client's is acknowledged by now, unless the server refused it; a server's has come */
		bool fast_open = oldstate == TCP_SYN_SENT ? tp->write_seq != tp->snd_una || tp->bytes_acked > 1
							  : tp->bytes_received;

		c = find_connection(sk);
		if (!c || c->generation != NEVER_WANTED)
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

static __noinline void end_if_quiet(struct sock *sk, struct tcp_sock *tp, struct connection *c,
				    const struct config *cfg)
{
	bool ended = false;
	struct exchange out;
	struct view v;

	read_view(sk, tp, &v);
	if ((__s32)(v.acked - v.written) < 0 || v.received != v.copied)
		return;
	if (!lock_connection(c))
		return;
	if ((__s64)(v.now_ns - c->last_ns) >= (__s64)cfg->quiet_ns && v.received == c->in_seq) {
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

/* Once a second over all measured sockets of the machine: end what is complete and has been quiet. */
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
		end_if_quiet(sk, tp, c, cfg);
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
