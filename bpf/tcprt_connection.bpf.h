/* SPDX-License-Identifier: GPL-2.0 */
/*
 * tcprt_connection.bpf.h: what TCP-RT keeps with a socket, and how sequence numbers that have moved since the last hook
 * become operations of tcprt_machine.h. step() runs under the connection's lock.
 */
#ifndef LATENCYPROBE_TCPRT_CONNECTION_BPF_H
#define LATENCYPROBE_TCPRT_CONNECTION_BPF_H

#include <bpf/bpf_helpers.h>
#include "events.h"
#include "kernel.h"
#include "tcprt_machine.h"

struct tcprt_connection {
	struct bpf_spin_lock lock;
	__u32 ooopack;	  /* out-of-order packets until the last send */
	__u64 generation; /* of the plan that decided */
	__u64 send_ns;	  /* entry of the last send call, until its bytes are seen to leave or to be held back */
	__u64 last_ns;	  /* of the last operation: time never goes back */
	__u32 una;	  /* snd_una as last seen */
	__u8 followed;
	__u8 partial;
	__u8 shut; /* our FIN is in write_seq, or will be in a moment */
	__u8 _pad;
	struct tcprt_machine machine;
	struct flow_header flow;
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct tcprt_connection);
} tasks SEC(".maps");

/* What a hook sees. Its own event comes last: what moved unseen before it did so earlier. */
struct seen {
	struct tcprt_op op;
	__u32 ooopack;
	bool sending; /* a send hook: unseen arrivals were before this send */
};

/* snd_nxt holds our FIN once everything up to it is sent, rcv_nxt the peer's once tcp_fin() has seen it. */
static __always_inline void see(const struct sock *sk, const struct tcp_sock *tp, const struct tcprt_connection *c,
				struct seen *s)
{
	struct tcprt_op *op = &s->op;

	op->now_ns = bpf_ktime_get_boot_ns();
	op->snd_nxt = tp->snd_nxt;
	op->snd_una = tp->snd_una;
	op->rcv_nxt = tp->rcv_nxt;
	op->sent = op->snd_nxt - (c->shut && op->snd_nxt == tp->write_seq);
	op->received = op->rcv_nxt - (sk->__sk_common.skc_flags & SOCK_DONE_BIT ? 1 : 0);
	op->total_retrans = tp->total_retrans;
	op->min_rtt_us = tp->rtt_min.s[0].v;
	op->mss = tp->mss_cache;
	s->ooopack = tp->rcv_ooopack;
	s->sending = false;
}

static __always_inline bool receive(struct tcprt_connection *c, struct seen *s, struct tcprt *out)
{
	if (tcprt_apart(s->op.received, c->machine.received_seq) <= 0)
		return false;
	s->op.ofo = s->ooopack != c->ooopack;
	return tcprt_recv_data(&c->machine, &s->op, out);
}

/*
 * New bytes have left: at the entry of the send call that wrote them, so that the stamp is never later than the peer's
 * answer, however soon that came; unless a hook since has seen them held back, by the window, Nagle or the like.
 */
static __always_inline bool transmit(struct tcprt_connection *c, struct seen *s, struct tcprt *out)
{
	__u64 now_ns = s->op.now_ns, send_ns = c->send_ns;
	bool ended;

	c->send_ns = 0;
	if (tcprt_apart(s->op.sent, c->machine.sent_seq) <= 0)
		return false;
	if (send_ns)
		s->op.now_ns = send_ns > c->last_ns ? send_ns : c->last_ns;
	c->ooopack = s->ooopack;
	ended = tcprt_send_data(&c->machine, &s->op, out);
	s->op.now_ns = now_ns;
	return ended;
}

/* Turn what has moved into operations. True: `out` holds a record. At most one of these can end a task. */
static __always_inline bool step(struct tcprt_connection *c, struct seen *s, struct tcprt *out)
{
	bool ended = false;

	if (s->op.now_ns < c->last_ns)
		s->op.now_ns = c->last_ns;
	if (s->sending)
		ended |= receive(c, s, out);
	ended |= transmit(c, s, out);
	if (tcprt_apart(s->op.snd_una, c->una) > 0) {
		c->una = s->op.snd_una;
		tcprt_pkts_acked(&c->machine, &s->op);
	}
	if (!s->sending)
		ended |= receive(c, s, out);
	c->last_ns = s->op.now_ns;
	return ended;
}

#endif
