// SPDX-License-Identifier: GPL-2.0
/*
 * tcprt.bpf.c: requests and responses at the TCP layer, as Alibaba's TCP-RT cuts them; docs/design/evidence.md,
 * "TCP-RT". Hooks see sequence numbers move and turn that into the operations of tcprt_machine.h. One record per task
 * and per connection.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "kernel.h"
#include "events.h"
#include "maps.bpf.h"
#include "flow.bpf.h"
#include "evidence.bpf.h"
#include "evidence_counts.bpf.h"
#define NEWEST struct tcprt
#define NEWEST_VALUE struct newest_record
#include "newest.bpf.h"
#include "tcprt_machine.h"
#include "tcprt_connection.bpf.h"
#include "tcprt_follow.bpf.h"

/*
 * 2 MiB per CPU, as the original's 8 x 256 KiB: 10,000 records of 200 + 8 bytes. User space multiplies it by the CPUs
 * that there are.
 */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 2 << 20);
} tcprts SEC(".maps");

#define TCP_HEADER_MAX 60

/* Send a record of the connection: its flow as it was established, its time as the machine has it. */
static __noinline int send_record(struct sock *sk, struct tcprt_connection *c, struct tcprt *record)
{
	struct connection *measured = bpf_sk_storage_get(&connections, sk, 0, 0);
	const struct config *cfg = get_config();
	__u64 boot_ns = record->flow.boot_ns;
	struct evidence_counts *n;

	__builtin_memcpy(&record->flow, &c->flow, sizeof(record->flow));
	record->flow.boot_ns = boot_ns;
	if (c->partial)
		record->flags |= TCPRT_PARTIAL;
	record->conn_class = measured ? measured->current.conn_class : CLASS_UNKNOWN;
	if (!cfg || keep_newest(record) || emit(&tcprts, record, sizeof(*record), cfg))
		return 0;
	n = evidence_counts_of(&record->flow);
	if (n)
		add(&n->lost_records, 1);
	return 0;
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
 * tcp_sendmsg_locked, before any byte is written; the socket is locked and `current` its owner. The
 * return of the call needs no hook: the next one that sees its bytes gone gives them this one's time.
 */
static __always_inline int on_send_start(struct sock *sk)
{
	struct tcprt_connection *c = connection_of(sk, true);
	struct tcp_sock *tp;

	if (!c)
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	return tp ? send_hook(sk, tp, c) : 0;
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
	c = connection_of(sk, true);
	if (!c)
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	return tp ? segment_hook(sk, tp, c, tp->snd_una) : 0;
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
	c = connection_of(sk, false);
	if (!c)
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return 0;
	return segment_hook(sk, tp, c, skb ? BPF_CORE_READ((struct tcp_skb_cb *)skb->cb, ack_seq) : tp->snd_una);
}

/* A tool that observes one process's sockets must know who connected them. */
static __always_inline bool is_of_process(void)
{
	__u32 zero = 0;
	struct evidence_filter *f = bpf_map_lookup_elem(&evidence_filter, &zero);

	return f && f->tgid;
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

/* The connection is over, and its counters are complete: tcp_disconnect() sets them back next. */
static __always_inline int release(struct sock *sk, struct tcp_sock *tp)
{
	struct tcprt_connection *c = connection_of(sk, false);

	if (!c)
		return 0;
	segment_hook(sk, tp, c, tp->snd_una);
	end_task(sk, tp, c);
	end_connection(sk, tp, c);
	bpf_sk_storage_delete(&tasks, sk);
	return 0;
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
		if (is_of_process())
			remember_owner(sk);
		return 0;
	}
	if (newstate == TCP_ESTABLISHED) {
		follow(sk, tp, oldstate == TCP_SYN_SENT ? ROLE_CLIENT : ROLE_SERVER);
		return 0;
	}
	if (newstate == TCP_CLOSE)
		return release(sk, tp);
	c = connection_of(sk, false);
	if (!c)
		return 0;
	segment_hook(sk, tp, c, tp->snd_una);
	if (newstate == TCP_FIN_WAIT1 || newstate == TCP_LAST_ACK)
		c->shut = 1;
	return 0;
}

/* tcp_destroy_sock: the backstop, after which the socket and its storage go. */
static __always_inline int on_destroy(struct sock *sk)
{
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);

	return tp ? release(sk, tp) : 0;
}

/* Once per skb and page that a call fills: behind its first bytes it is no new call. */
SEC("tp_btf/tcp_sendmsg_locked")
int BPF_PROG(send_start__tp_btf, struct sock *sk, struct msghdr *msg)
{
	return msg && msg->msg_iter.iov_offset ? 0 : on_send_start(sk);
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
