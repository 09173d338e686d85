// SPDX-License-Identifier: GPL-2.0
/*
 * http2.bpf.c: calls on connections of HTTP/2, told from each other by the headers of frames: docs/design/http2.md. Beside
 * exchange.bpf.c, which decides whose a socket is; attached only while a target asks for it.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include "kernel.h"
#include "events.h"
#include "core_fixes.bpf.h"
#include "exchange_decide.bpf.h"
#include "http2_walk.bpf.h"

/* include/linux/uio.h */
enum iter_type {
	ITER_UBUF,
	ITER_IOVEC,
};

/* Whose calls may be streams, or NULL. Which sockets these are is decided by exchange.bpf.c, at its own hooks. */
static __always_inline struct connection *told_by_streams(struct sock *sk)
{
	struct connection *c = find_connection(sk);

	return c && c->target_set && c->told_by > BY_TURNS_FOR_GOOD ? c : NULL;
}

/* The same where frames pass: those that do so while no target has the connection are missed. The socket is locked. */
static __always_inline struct connection *followed(struct sock *sk)
{
	struct connection *c = find_connection(sk);

	if (!c || c->told_by <= BY_TURNS_FOR_GOOD)
		return NULL;
	if (c->target_set)
		return c;
	c->told_by = SEEKING_STREAMS;
	return NULL;
}

/* What is kept of it; for where the socket is locked. */
static __noinline struct http2 *http2_of(struct sock *sk, struct connection *c, const struct tcp_sock *tp)
{
	struct http2 *h = bpf_sk_storage_get(&http2_connections, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);

	/* Then other plans had turns on it, or nobody: all that is known is of before. Sequence numbers may have come round. */
	if (h && h->followed && c->told_by == SEEKING_STREAMS) {
		break_all(h, c, tp, BROKEN_BY(OUTCOME_OK, EXCLUDED_PLAN), now_ns());
		give_room(h);
		bpf_sk_storage_delete(&http2_connections, sk);
		h = bpf_sk_storage_get(&http2_connections, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	}
	if (!h)
		return NULL;
	h->followed = c->told_by == BY_STREAMS;
	if (!h->placed) {
		bool serves = c->current.role == ROLE_SERVER;

		h->placed = 1;
		h->cookie = c->current.sock_cookie;
		h->role = c->current.role;
		h->target_set = c->target_set;
		h->in_base = c->in_seq - (__u32)c->in_offset;
		h->out_base = c->out_seq - (__u32)c->out_offset;
		h->arrived = tp->copied_seq; /* in_base may lie further back than a sequence number tells */
		if (c->told_by == BY_TURNS_SO_FAR) {
			h->fresh = 1;
			h->in.next = h->in_base;
			h->out.next = h->out_base;
			h->in.state = serves ? FRAMES_PREFACE : FRAMES_SETTINGS;
			h->out.state = serves ? FRAMES_SETTINGS : FRAMES_PREFACE;
		}
	}
	if (h->target_set != c->target_set) {
		break_all(h, c, tp, BROKEN_BY(OUTCOME_OK, EXCLUDED_PLAN), now_ns());
		h->target_set = c->target_set;
	}
	return h;
}

/* The tracepoint fires once for each skb of a call. True: this is the first one, or of another call. */
static __always_inline bool begins_call(struct http2 *h, struct connection *c, const struct tcp_sock *tp, __u32 until,
					__u64 now_ns)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid();

	if (h->call_pid_tgid == pid_tgid && h->call_until == until)
		return false;
	settle_endings(h, c, tp, tp->write_seq, h->call_ns, FLAG_SEND_APPROX); /* of calls whose return was not seen */
	h->call_ns = now_ns;
	h->call_pid_tgid = pid_tgid;
	h->call_until = until;
	return true;
}

static __noinline void send_frames(struct sock *sk, struct connection *c, struct msghdr *msg)
{
	const struct iov_iter *from = &msg->msg_iter;
	struct tcp_sock *tp = tcp_sock_of(sk);
	struct http2 *h = tp ? http2_of(sk, c, tp) : NULL;
	__u64 offset = from->iov_offset;
	struct walk w = {};

	if (!h)
		return;
	w.f.h = h;
	w.f.c = c;
	w.f.tp = tp;
	w.f.now_ns = now_ns();
	w.f.out = true;
	w.d = &h->out;
	w.begin = tp->write_seq;
	w.end = w.begin + (__u32)from->count;
	if (!begins_call(h, c, tp, w.end, w.f.now_ns))
		return; /* it was walked to its end */
	w.segment_seq = w.begin;
	w.segment_end = w.begin;
	if (from->iter_type == bpf_core_enum_value(enum iter_type, ITER_UBUF)) {
		w.base = (__u64)BPF_CORE_READ(from, ubuf) + offset;
		w.segment_end = w.end;
	} else if (from->iter_type == bpf_core_enum_value(enum iter_type, ITER_IOVEC)) {
		w.segments = (__u64)BPF_CORE_READ(from, __iov);
		w.left = from->nr_segs;
		if (!next_segment(&w))
			return;
		w.base += offset;
		w.segment_end -= offset;
	} else {
		return; /* sendfile, splice: payload, or a hole */
	}
	walk_frames(&w);
}

/* The socket is locked. */
static __always_inline int on_send(struct sock *sk, struct msghdr *msg)
{
	struct connection *c = followed(sk);

	if (c)
		send_frames(sk, c, msg);
	return 0;
}

SEC("tp_btf/tcp_sendmsg_locked")
int BPF_PROG(send__tp_btf, struct sock *sk, struct msghdr *msg)
{
	return on_send(sk, msg);
}

SEC("fentry/tcp_sendmsg_locked")
int BPF_PROG(send__fentry, struct sock *sk, struct msghdr *msg)
{
	return on_send(sk, msg);
}

/* A send call has returned; the socket is not locked. */
SEC("tp_btf/sock_send_length")
int BPF_PROG(sent, struct sock *sk, int ret)
{
	struct connection *c = told_by_streams(sk);
	struct tcp_sock *tp = c ? tcp_sock_of(sk) : NULL;
	struct http2 *h = tp ? bpf_sk_storage_get(&http2_connections, sk, 0, 0) : NULL;

	if (h) {
		WRITE_ONCE(h->returned_ns, now_ns());
		settle_endings(h, c, tp, tp->write_seq, h->returned_ns, 0);
	}
	return 0;
}

static __noinline void note_arrival(struct sock *sk, struct connection *c)
{
	struct tcp_sock *tp = tcp_sock_of(sk);
	struct http2 *h = tp ? http2_of(sk, c, tp) : NULL;
	__u32 received = tp ? tp->rcv_nxt : 0;
	struct arrival *one;

	if (!h)
		return;
	received -= sk->__sk_common.skc_flags & SOCK_DONE_BIT ? 1 : 0;
	if (!is_before(h->arrived, received))
		return;
	if (h->arrivals_head - h->arrivals_tail == ARRIVALS) {
		if (!is_before(h->arrivals[h->arrivals_tail % ARRIVALS].seq, tp->copied_seq)) {
			h->arrivals_cut = 1;
			return;
		}
		h->arrivals_tail++; /* it was read: PING and its like ask for no note */
	}
	h->arrived = received;
	one = &h->arrivals[h->arrivals_head++ % ARRIVALS];
	one->seq = received;
	one->late = h->arrivals_cut;
	one->ns = as_boot_ns(tp->tcp_clock_cache);
	h->arrivals_cut = 0;
}

SEC("tp_btf/sk_data_ready")
int BPF_PROG(ready, struct sock *sk)
{
	struct connection *c = followed(sk);

	if (c)
		note_arrival(sk, c);
	return 0;
}

static __noinline void read_frames(struct sock *sk, struct connection *c, struct sk_buff *skb, int len)
{
	const struct tcp_skb_cb *cb = (const struct tcp_skb_cb *)skb->cb;
	struct tcp_sock *tp = tcp_sock_of(sk);
	struct http2 *h = tp ? http2_of(sk, c, tp) : NULL;
	struct walk w = {};
	__u32 offset;

	if (!h)
		return;
	w.segment_seq = BPF_CORE_READ(cb, seq);
	w.begin = tp->copied_seq;
	offset = w.begin - w.segment_seq;
	if (offset >= skb->len || len <= 0)
		return; /* a look ahead (MSG_PEEK), or no packet of this connection */
	w.f.h = h;
	w.f.c = c;
	w.f.tp = tp;
	w.f.now_ns = now_ns();
	w.d = &h->in;
	w.skb = skb;
	w.segment_end = w.segment_seq + skb->len;
	w.end = w.begin + len;
	if (is_before(w.segment_end, w.end))
		w.end = w.segment_end;
	walk_frames(&w);
}

/* What lies at copied_seq goes to the reader; the socket is locked. */
SEC("tp_btf/skb_copy_datagram_iovec")
int BPF_PROG(read, struct sk_buff *skb, int len)
{
	struct sock *sk = skb->sk;
	struct connection *c = sk ? followed(sk) : NULL;

	if (c)
		read_frames(sk, c, skb, len);
	return 0;
}

/* In place of an outcome: it depends on the role. */
#define LEFT_BY_US 0x40
#define LEFT_BY_PEER 0x41

/*
 * No later frame of a connection that has left will tell what of it passed unseen: end the message that was read so.
 * Returns why what else is open counts for nobody, if it does.
 */
static __always_inline __u32 end_unseen(struct http2 *h, struct connection *c, const struct tcp_sock *tp)
{
	struct seen f = { .h = h, .c = c, .tp = tp, .now_ns = h->left_ns };

	if (h->in.ending && !is_before(tp->copied_seq, h->in.ending_seq))
		end_read(&f, tp->copied_seq);
	if (passed_unseen(&h->in, tp->copied_seq) || passed_unseen(&h->out, tp->write_seq))
		return EXCLUDED_OUT_OF_STEP;
	return EXCLUDED_NONE;
}

/*
 * The connection has left: note how and when, and end what is open unless some of it may still be read, from which neither
 * a FIN nor a RST keeps a reader. Then the socket's end does that.
 */
static __noinline void leave_streams(struct sock *sk, __u32 outcome, bool unread, bool again)
{
	struct http2 *h = bpf_sk_storage_get(&http2_connections, sk, 0, 0);
	struct connection *c = h ? find_connection(sk) : NULL; /* some may open as it is read to its end */
	struct tcp_sock *tp = c ? tcp_sock_of(sk) : NULL;
	const struct config *cfg = get_config();
	__u32 excluded = EXCLUDED_NONE;

	if (!tp)
		return;
	if (outcome >= LEFT_BY_US) /* a server that leaves does not answer; a client that does has given up */
		outcome = (h->role == ROLE_SERVER) == (outcome == LEFT_BY_US) ? OUTCOME_UNANSWERED : OUTCOME_ABORTED;
	if (!h->left) { /* afterwards tcp_disconnect() may have moved write_seq */
		h->left = outcome;
		h->left_ns = now_ns();
		settle_endings(h, c, tp, tp->write_seq, h->call_ns, FLAG_SEND_APPROX);
	}
	if (unread)
		return;
	/* one that connects again is not decided on either, but that is about its next connection alone */
	if (c->target_set != h->target_set || !(again || (cfg && c->generation == cfg->generation)))
		excluded = EXCLUDED_PLAN;
	else if (!again) /* then tcp_disconnect() has moved copied_seq and write_seq */
		excluded = end_unseen(h, c, tp);
	break_all(h, c, tp, BROKEN_BY(h->left, excluded), h->left_ns);
	give_room(h);
}

/*
 * This end can neither write nor be written to any more: it is closed, or has sent its FIN and does not read on. TCP itself
 * lives on until the peer has acknowledged that FIN, for minutes if the peer is gone.
 */
static __always_inline bool leaves(const struct sock *sk, int newstate)
{
	if (newstate == TCP_FIN_WAIT1)
		return sk->sk_shutdown & RCV_SHUTDOWN; /* else by shutdown(SHUT_WR) */
	return newstate == TCP_LAST_ACK || newstate == TCP_CLOSE;
}

/* Fires before the state is written. */
SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(state, struct sock *sk, int oldstate, int newstate)
{
	struct tcp_sock *tp;
	__u32 outcome, received;

	if ((newstate != TCP_SYN_SENT && !leaves(sk, newstate)) || !is_tcp(sk))
		return 0;
	if (newstate == TCP_SYN_SENT) { /* of a socket that connects again, what is left of its last connection */
		leave_streams(sk, LEFT_BY_US, false, true);
		bpf_sk_storage_delete(&http2_connections, sk);
		return 0;
	}
	tp = tcp_sock_of(sk);
	received = tp->rcv_nxt - (sk->__sk_common.skc_flags & SOCK_DONE_BIT ? 1 : 0);
	outcome = outcome_of(sk->sk_err);
	if (!outcome)
		outcome = oldstate == TCP_LAST_ACK || oldstate == TCP_CLOSE_WAIT ? LEFT_BY_PEER : LEFT_BY_US;
	leave_streams(sk, outcome, is_before(tp->copied_seq, received), false);
	return 0;
}

/* The backstop, after which the socket and its storage go. */
SEC("tp_btf/tcp_destroy_sock")
int BPF_PROG(destroy, struct sock *sk)
{
	leave_streams(sk, LEFT_BY_US, false, false);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
