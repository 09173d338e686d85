// SPDX-License-Identifier: GPL-2.0
/*
 * tcprt.bpf.c: requests and responses at the TCP layer, as Alibaba's TCP-RT cuts them; tcp-evidence.md part B. Hooks see
 * sequence numbers move and turn that into the operations of tcprt.h. One record per task and per connection.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "kernel.h"
#include "events.h"
#include "maps.bpf.h"
#include "flow.bpf.h"
#include "evidence.bpf.h"
#include "newest.bpf.h"
#include "tcprt.h"

/*
 * 2 MiB per CPU, as the original's 8 x 256 KiB: 10,000 records of 200 + 8 bytes. User space asks for the CPUs that
 * there are.
 */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 2 << 20);
} tcprts SEC(".maps");

/*
 * Ports that a tool follows, one bit each: words 0 to 1023 for the local end, then as many for the peer's. The bit of
 * port 0, which no connection has, says that there is a choice; without it the role decides.
 */
#define PORT_WORDS 1024
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * PORT_WORDS);
	__type(key, __u32);
	__type(value, __u64);
} tcprt_ports SEC(".maps");

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

#define TCP_HEADER_MAX 60

/* What a hook sees. Its own event comes last: what moved unseen before it did so earlier. */
struct seen {
	struct tcprt_op op;
	__u32 ooopack;
	bool sending; /* a send hook: unseen arrivals were before this send */
};

/*
 * snd_nxt holds our FIN once everything up to it is sent, rcv_nxt the peer's once tcp_fin() has seen it. `acked`: what
 * the segment at hand acknowledges, which tcp_probe sees before snd_una does.
 */
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

/* Send a record of the connection: its flow as it was established, its time as the machine says. */
static __noinline int send_record(struct sock *sk, struct tcprt_connection *c, struct tcprt *record)
{
	struct connection *measured = bpf_sk_storage_get(&connections, sk, 0, 0);
	const struct config *cfg = get_config();
	__u64 boot_ns = record->flow.boot_ns;

	__builtin_memcpy(&record->flow, &c->flow, sizeof(record->flow));
	record->flow.boot_ns = boot_ns;
	if (c->partial)
		record->flags |= TCPRT_PARTIAL;
	record->conn_class = measured ? measured->current.conn_class : CLASS_UNKNOWN;
	if (cfg && !keep_newest(record))
		emit(&tcprts, record, sizeof(*record), cfg);
	return 0;
}

static __always_inline bool has_port(__u16 port, __u32 first_word)
{
	__u32 word = first_word + (port >> 6);
	__u64 *bits = bpf_map_lookup_elem(&tcprt_ports, &word);

	return bits && *bits >> (port & 63) & 1;
}

/* Which side of a connection this end is, 0 = none. The first match wins, tcp-evidence.md B.1. */
static __always_inline __u8 side_of(__u16 local_port, __u16 peer_port, __u8 role)
{
	if (has_port(0, 0))
		return has_port(local_port, 0) ? TCPRT_LOCAL : has_port(peer_port, PORT_WORDS) ? TCPRT_PEER : 0;
	return role == ROLE_SERVER ? TCPRT_LOCAL : role == ROLE_CLIENT ? TCPRT_PEER : 0;
}

/*
 * Decide whether this connection is followed, and begin. NULL: it is not. `role`: ROLE_UNKNOWN for one whose beginning
 * was not seen. A socket that is not followed is marked only where that spares it from being asked again.
 */
static __noinline struct tcprt_connection *follow(struct sock *sk, struct tcp_sock *tp, __u8 role)
{
	const struct config *cfg = get_config();
	__u64 generation = cfg ? cfg->generation : 0;
	struct tcprt_connection *c;
	struct flow_header flow = {};
	struct seen s;
	bool partial = role == ROLE_UNKNOWN || tp->bytes_received; /* or data in the SYN */
	__u8 side = 0;

	if (wants_evidence(sk, EVIDENCE_TCPRT, role, &flow))
		side = side_of(flow.local_port, flow.peer_port, flow.role);
	c = bpf_sk_storage_get(&tasks, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!c) {
		if (side)
			count_lost(LOST_STORAGE);
		return NULL;
	}
	if (flow.role == ROLE_UNKNOWN)
		flow.role = side == TCPRT_LOCAL ? ROLE_SERVER : ROLE_CLIENT;
	if (role != ROLE_UNKNOWN)
		c->shut = 0;
	see(sk, tp, c, &s);
	bpf_spin_lock(&c->lock);
	if (!c->followed || role != ROLE_UNKNOWN || c->machine.side != side) {
		c->followed = side != 0;
		c->partial = partial;
		c->ooopack = s.ooopack;
		c->send_ns = 0;
		c->last_ns = s.op.now_ns;
		c->una = s.op.snd_una;
		tcprt_init(&c->machine, &s.op, side);
	}
	c->generation = generation;
	__builtin_memcpy(&c->flow, &flow, sizeof(c->flow));
	bpf_spin_unlock(&c->lock);
	return side ? c : NULL;
}

/* An old connection may be worth a look: in a plan if it is measured, for a tool if it has one of the ports. */
static __always_inline bool may_adopt(struct sock *sk)
{
	struct connection *measured;

	if (sk->__sk_common.skc_state != TCP_ESTABLISHED)
		return false;
	if (has_port(0, 0))
		return side_of(sk->__sk_common.skc_num, bpf_ntohs(sk->__sk_common.skc_dport), ROLE_UNKNOWN);
	measured = bpf_sk_storage_get(&connections, sk, 0, 0);
	return measured && measured->target_set;
}

/* The state of a connection that is followed, or NULL. `locked`: the socket is locked or owned here, so it may begin. */
static __always_inline struct tcprt_connection *connection_of(struct sock *sk, struct tcp_sock *tp, bool locked)
{
	struct tcprt_connection *c = bpf_sk_storage_get(&tasks, sk, 0, 0);
	const struct config *cfg = get_config();

	if (!cfg)
		return NULL;
	if (c && c->generation == cfg->generation)
		return c->followed ? c : NULL;
	if (!locked || (!c && !may_adopt(sk)))
		return NULL;
	return follow(sk, tp, ROLE_UNKNOWN);
}

static __noinline int send_hook(struct sock *sk, struct tcp_sock *tp, struct tcprt_connection *c)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid();
	struct tcprt out;
	struct seen s;
	bool ended;

	if (c->flow.owner_tid != (__u32)pid_tgid) {
		c->flow.owner_tgid = pid_tgid >> 32;
		c->flow.owner_tid = pid_tgid;
		bpf_get_current_comm(c->flow.owner_comm, sizeof(c->flow.owner_comm));
	}
	see(sk, tp, c, &s);
	s.sending = true;
	bpf_spin_lock(&c->lock);
	ended = step(c, &s, &out);
	/* bytes that wait behind others leave when an ACK lets them: not at this call */
	c->send_ns = s.op.snd_nxt == tp->write_seq ? s.op.now_ns : 0;
	bpf_spin_unlock(&c->lock);
	if (ended)
		send_record(sk, c, &out);
	return 0;
}

/*
 * tcp_sendmsg_locked: once per skb appended, before its bytes are; the socket is locked and `current` its owner. The
 * return of the call needs no hook: the next one that sees its bytes gone gives them this one's time.
 */
static __always_inline int on_send_start(struct sock *sk)
{
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	struct tcprt_connection *c;

	if (!tp)
		return 0;
	c = connection_of(sk, tp, true);
	return c ? send_hook(sk, tp, c) : 0;
}

static __noinline int segment_hook(struct sock *sk, struct tcp_sock *tp, struct tcprt_connection *c, __u32 acked)
{
	struct tcprt out;
	struct seen s;
	bool ended;

	see(sk, tp, c, &s);
	if (tcprt_apart(acked, s.op.snd_una) > 0 && tcprt_apart(acked, s.op.snd_nxt) <= 0)
		s.op.snd_una = acked;
	bpf_spin_lock(&c->lock);
	ended = step(c, &s, &out);
	bpf_spin_unlock(&c->lock);
	if (ended)
		send_record(sk, c, &out);
	return 0;
}

/* sk_data_ready: in-order bytes, or a FIN, arrived; the socket is locked or owned. */
static __always_inline int on_ready(struct sock *sk)
{
	struct tcprt_connection *c;
	struct tcp_sock *tp;

	if (!is_tcp(sk))
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return 0;
	c = connection_of(sk, tp, true);
	return c ? segment_hook(sk, tp, c, tp->snd_una) : 0;
}

/*
 * tcp_probe: a segment is about to be processed in ESTABLISHED. One that is longer than any header brings data, and
 * sk_data_ready comes in a moment and sees its ACK too. `skb` NULL: it has been processed.
 */
static __always_inline int on_segment(struct sock *sk, struct sk_buff *skb)
{
	struct tcprt_connection *c;
	struct tcp_sock *tp;

	if (skb && skb->len > TCP_HEADER_MAX)
		return 0;
	c = bpf_sk_storage_get(&tasks, sk, 0, 0);
	if (!c || !c->followed)
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return 0;
	return segment_hook(sk, tp, c, skb ? BPF_CORE_READ((struct tcp_skb_cb *)skb->cb, ack_seq) : tp->snd_una);
}

/* A tool that wants one process's sockets asks who connected them. */
static __always_inline bool asks_for_process(void)
{
	__u32 zero = 0;
	struct evidence_filter *f = bpf_map_lookup_elem(&evidence_filter, &zero);

	return f && f->tgid;
}

/* inet_sock_set_state: fires before the state is written. */
static __always_inline int on_state(struct sock *sk, int oldstate, int newstate)
{
	struct tcprt_connection *c;
	struct tcp_sock *tp;

	if (!is_tcp(sk))
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return 0;
	if (newstate == TCP_SYN_SENT) {
		if (asks_for_process())
			remember_owner(sk);
		return 0;
	}
	if (newstate == TCP_ESTABLISHED) {
		follow(sk, tp, oldstate == TCP_SYN_SENT ? ROLE_CLIENT : ROLE_SERVER);
		return 0;
	}
	c = bpf_sk_storage_get(&tasks, sk, 0, 0);
	if (!c || !c->followed)
		return 0;
	segment_hook(sk, tp, c, tp->snd_una);
	if (newstate == TCP_FIN_WAIT1 || newstate == TCP_LAST_ACK)
		c->shut = 1;
	return 0;
}

/* Payload of the whole connection, as the kernel has counted it: one that was adopted too. */
static __always_inline void count_connection(const struct tcp_sock *tp, const struct seen *s, struct tcprt *out)
{
	const struct tcprt_op *op = &s->op;
	__u32 syn = out->side == TCPRT_PEER ? 1 : 0; /* bytes_acked has the SYN of the end that connected */

	out->sent_bytes = tp->bytes_acked + tcprt_apart(op->sent, op->snd_una) - syn; /* both may have a FIN: -1 */
	out->received_bytes = tp->bytes_received - (op->rcv_nxt - op->received);
}

static __noinline int end_task(struct sock *sk, struct tcp_sock *tp, struct tcprt_connection *c)
{
	struct tcprt out;
	struct seen s;
	bool ended;

	see(sk, tp, c, &s);
	bpf_spin_lock(&c->lock);
	if (s.op.now_ns < c->last_ns)
		s.op.now_ns = c->last_ns;
	ended = tcprt_release(&c->machine, &s.op, &out);
	bpf_spin_unlock(&c->lock);
	if (ended)
		send_record(sk, c, &out);
	return 0;
}

static __noinline int end_connection(struct sock *sk, struct tcp_sock *tp, struct tcprt_connection *c)
{
	struct tcprt out;
	struct seen s;

	see(sk, tp, c, &s);
	bpf_spin_lock(&c->lock);
	tcprt_close(&c->machine, &s.op, &out);
	c->followed = 0;
	bpf_spin_unlock(&c->lock);
	count_connection(tp, &s, &out);
	return send_record(sk, c, &out);
}

/* tcp_destroy_sock: after this the socket and its storage go. */
static __always_inline int on_destroy(struct sock *sk)
{
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	struct tcprt_connection *c;

	if (!tp)
		return 0;
	c = bpf_sk_storage_get(&tasks, sk, 0, 0);
	if (!c || !c->followed)
		return 0;
	segment_hook(sk, tp, c, tp->snd_una);
	end_task(sk, tp, c);
	return end_connection(sk, tp, c);
}

SEC("tp_btf/tcp_sendmsg_locked")
int BPF_PROG(send_start__tp_btf, struct sock *sk)
{
	return on_send_start(sk);
}

SEC("fentry/tcp_sendmsg_locked")
int BPF_PROG(send_start__fentry_sendpage__sendmsg, struct sock *sk)
{
	return on_send_start(sk);
}

SEC("fentry/do_tcp_sendpages")
int BPF_PROG(send_start__fentry_sendpage__sendpages, struct sock *sk)
{
	return on_send_start(sk);
}

SEC("fentry/tcp_sendmsg_locked")
int BPF_PROG(send_start__fentry, struct sock *sk)
{
	return on_send_start(sk);
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

SEC("tp_btf/tcp_probe")
int BPF_PROG(segment__tp_btf, struct sock *sk, struct sk_buff *skb)
{
	return on_segment(sk, skb);
}

SEC("fexit/tcp_rcv_established")
int BPF_PROG(segment__fexit__established, struct sock *sk)
{
	return on_segment(sk, NULL);
}

SEC("fexit/tcp_rcv_state_process")
int BPF_PROG(segment__fexit__state, struct sock *sk)
{
	return on_segment(sk, NULL);
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

char LICENSE[] SEC("license") = "GPL";
