// SPDX-License-Identifier: GPL-2.0
/*
 * handshake.bpf.c: how long connections took to open, and why some did not, docs/design/evidence.md, "Handshakes",
 * method `kernel`: the kernel's own RTT sample, read where the socket changes its state. Nothing runs per packet.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "kernel.h"
#include "events.h"
#include "maps.bpf.h"
#include "flow.bpf.h"
#include "evidence.bpf.h"
#include "handshake_counts.bpf.h"

#define US 1000ULL
/* TCP timestamps count ms; a sample from them errs by less than two of their ticks. */
#define TIMESTAMP_ERROR_US 2000
/* SYN-ACKs are at least this far apart, net/ipv4/tcp_input.c: half a second, for those that answer another SYN. */
#define SYNACK_GAP_US 500000

/* A connect() in progress. */
struct attempt {
	__u64 start_ns;
	__u64 last_syn_us; /* the kernel's stamp of the last SYN, 0 = the first one is */
	__u64 simultaneous;
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct attempt);
} attempts SEC(".maps");

/* A filter may name the local port, which the socket does not have yet: under it every attempt is followed. */
static __always_inline bool may_be_requested(struct sock *sk)
{
	struct flow_header flow = {};
	struct evidence_filter *f;
	__u32 zero = 0;

	f = bpf_map_lookup_elem(&evidence_filter, &zero);
	return f && (f->mode == MATCH_FILTER || evidence_requested(sk, EVIDENCE_HANDSHAKES, ROLE_CLIENT, &flow));
}

static __noinline void begin(struct sock *sk)
{
	struct attempt *a;

	if (!may_be_requested(sk))
		return;
	remember_owner(sk);
	a = bpf_sk_storage_get(&attempts, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!a) {
		count_lost(LOST_STORAGE);
		return;
	}
	a->start_ns = bpf_ktime_get_boot_ns();
	a->last_syn_us = 0;
	a->simultaneous = 0;
}

static __always_inline void exact(struct handshake *h, __u64 rtt_us)
{
	h->rtt_ns = h->rtt_min_ns = h->rtt_max_ns = rtt_us * US;
}

static __always_inline void between(struct handshake *h, __u64 min_ns, __u64 max_ns)
{
	h->flags |= HANDSHAKE_AMBIGUOUS;
	h->rtt_min_ns = min_ns;
	h->rtt_max_ns = max_ns;
}

/*
 * The sample that followed a resent SYN is one of TCP timestamps, and these name the first SYN that reached the server,
 * also where its first answer was lost: then it holds the wait for another one. Only a sample that fits the last SYN is
 * a round trip.
 */
static __always_inline void judge_client(struct handshake *h, const struct tcp_sock *tp, const struct attempt *a)
{
	__u64 since_us = a && a->last_syn_us ? tp->tcp_mstamp - a->last_syn_us : 0;
	__u32 sample_us = tp->srtt_us >> 3;
	__s64 differ_us = sample_us - since_us;

	h->n_syn = 1 + tp->total_retrans;
	if (sample_us && h->n_syn == 1) {
		exact(h, sample_us);
	} else if (sample_us && since_us && differ_us < TIMESTAMP_ERROR_US && -differ_us < TIMESTAMP_ERROR_US) {
		exact(h, since_us);
		h->flags |= HANDSHAKE_TIMESTAMPS;
	} else {
		between(h, since_us * US, h->connect_ns ? h->connect_ns : sample_us * US);
	}
}

/*
 * Not a round trip: whole ms without a resent SYN-ACK (a SYN cookie's timestamp, rounded by up to 64 ms), the time
 * until an ACK with data (the client waited for it, or TCP_DEFER_ACCEPT did), a timestamp that may name the SYN-ACK
 * before the last.
 */
static __always_inline void judge_server(struct handshake *h, const struct tcp_sock *tp)
{
	__u32 sample_us = tp->srtt_us >> 3, with_data = tp->data_segs_in;

	if (tp->bytes_received)
		with_data--; /* the SYN, by Fast Open */
	h->synack_retransmits = tp->total_retrans;
	if (!sample_us || (!h->synack_retransmits && sample_us % 1000 == 0)) {
		between(h, 0, 0);
	} else if (with_data || (h->synack_retransmits && sample_us >= SYNACK_GAP_US)) {
		between(h, 0, sample_us * US);
	} else {
		exact(h, sample_us);
		if (h->synack_retransmits)
			h->flags |= HANDSHAKE_TIMESTAMPS;
	}
}

static __noinline void established(struct sock *sk, struct tcp_sock *tp, struct attempt *a, __u8 role)
{
	struct handshake h = {};
	__u32 acked;

	if (!evidence_requested(sk, EVIDENCE_HANDSHAKES, role, &h.flow))
		return;
	acked = tp->snd_una - (__u32)tp->bytes_acked; /* a client's SYN is in bytes_acked */
	h.flow.role = role;
	h.method = METHOD_KERNEL;
	if (role == ROLE_CLIENT) {
		h.outcome = a && a->simultaneous ? CONNECT_SIMULTANEOUS : CONNECT_OK;
		h.connect_ns = a ? h.flow.boot_ns - a->start_ns : 0;
		h.flags = a ? 0 : HANDSHAKE_PARTIAL;
		h.client_isn = acked;
		h.server_isn = tp->rcv_nxt - 1;
		judge_client(&h, tp, a);
	} else {
		h.client_isn = tp->rcv_nxt - 1 - (__u32)tp->bytes_received; /* of Fast Open */
		h.server_isn = acked - 1;
		judge_server(&h, tp);
	}
	count_and_emit(&h);
}

/* What the peer and the routers answered, include/net/icmp.h: icmp_err_convert[] and icmpv6_err_convert() too. */
static __always_inline __u8 outcome_of(int err, bool sent)
{
	switch (err) {
	case 0:
		return sent ? CONNECT_ABORTED : CONNECT_OTHER;
	case ECONNREFUSED:
		return CONNECT_REFUSED;
	case ETIMEDOUT:
		return CONNECT_TIMEOUT;
	case EHOSTUNREACH:
	case ENETUNREACH:
	case EHOSTDOWN:
	case ENONET:
	case ENOPROTOOPT:
	case EACCES:
		return CONNECT_UNREACHABLE;
	default:
		return CONNECT_OTHER;
	}
}

/*
 * An ICMP error that comes while connect() holds the socket ends no attempt, but the application learns of it: it reads
 * the error, which takes it off the socket, and closes. A copy stays in the error queue.
 */
static __always_inline int why_failed(const struct sock *sk)
{
	struct sk_buff *last = sk->sk_error_queue.prev;
	__u32 queued = 0;
	int err = sk->sk_err;

	if (!err)
		err = sk->sk_err_soft;
	if (err || !sk->sk_error_queue.qlen)
		return err;
	bpf_probe_read_kernel(&queued, sizeof(queued), &((struct sock_exterr_skb *)last->cb)->ee.ee_errno);
	return queued;
}

static __noinline void failed(struct sock *sk, struct tcp_sock *tp, struct attempt *a)
{
	struct handshake h = {};

	if (!evidence_requested(sk, EVIDENCE_HANDSHAKES, ROLE_CLIENT, &h.flow))
		return;
	h.flow.role = ROLE_CLIENT;
	h.flow.local_port = bpf_ntohs(tp->inet_conn.icsk_inet.inet_sport); /* skc_num is 0 by now */
	h.method = METHOD_KERNEL;
	h.outcome = outcome_of(why_failed(sk), h.flow.local_port);
	h.connect_ns = a ? h.flow.boot_ns - a->start_ns : 0;
	h.flags = a ? 0 : HANDSHAKE_PARTIAL;
	h.client_isn = tp->snd_una;
	h.n_syn = h.flow.local_port ? 1 + tp->total_retrans : 0;
	count_and_emit(&h);
}

/* inet_sock_set_state: fires before the state is written. */
static __always_inline int on_state(struct sock *sk, int oldstate, int newstate)
{
	struct attempt *a;
	struct tcp_sock *tp;

	if (!is_tcp(sk))
		return 0;
	if (newstate == TCP_SYN_SENT) {
		begin(sk);
		return 0;
	}
	if (oldstate != TCP_SYN_SENT && oldstate != TCP_SYN_RECV)
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return 0;
	a = bpf_sk_storage_get(&attempts, sk, 0, 0);
	if (newstate == TCP_SYN_RECV) {
		if (a)
			a->simultaneous = 1;
		return 0;
	}
	if (newstate == TCP_ESTABLISHED)
		established(sk, tp, a, a || oldstate == TCP_SYN_SENT ? ROLE_CLIENT : ROLE_SERVER);
	else if (a || oldstate == TCP_SYN_SENT)
		failed(sk, tp, a);
	if (a)
		bpf_sk_storage_delete(&attempts, sk);
	return 0;
}

/* tcp_retransmit_skb: after the transmission, for each attempt at one. */
static __always_inline int on_retransmit(struct sock *sk)
{
	struct attempt *a;
	struct tcp_sock *tp;

	if (sk->__sk_common.skc_state != TCP_SYN_SENT)
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	a = tp ? bpf_sk_storage_get(&attempts, sk, 0, 0) : NULL;
	if (a)
		a->last_syn_us = tp->tcp_mstamp;
	return 0;
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(state__tp_btf, struct sock *sk, int oldstate, int newstate)
{
	return on_state(sk, oldstate, newstate);
}

SEC("tp_btf/tcp_retransmit_skb")
int BPF_PROG(retransmit__tp_btf, struct sock *sk)
{
	return on_retransmit(sk);
}

char LICENSE[] SEC("license") = "GPL";
