// SPDX-License-Identifier: GPL-2.0
/*
 * retransmit.bpf.c: what TCP sends again, docs/design/evidence.md, "Retransmits". All hooks are off the loss-free path,
 * but for one firing per connection at its beginning and end. Entry points are named as in exchange.bpf.c.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "kernel.h"
#include "events.h"
#include "evidence.bpf.h"
#include "retransmit_counts.bpf.h"
#include "retransmit_sender.bpf.h"

/* How often the counters of a connection that lasts are counted. */
#define COUNT_NS 10000000000ULL

/* The raw fields of the socket. */
static __always_inline void read_socket(struct sock *sk, const struct tcp_sock *tp, struct retransmit *r)
{
	const struct inet_connection_sock *icsk = &tp->inet_conn;

	r->tcp_state = sk->__sk_common.skc_state;
	r->ca_state = BPF_CORE_READ_BITFIELD_PROBED(icsk, icsk_ca_state);
	r->icsk_pending = icsk->icsk_pending;
	r->icsk_retransmits = icsk->icsk_retransmits;
	r->backoff = icsk->icsk_backoff;
	r->rto_jiffies = icsk->icsk_rto;
	r->total_retrans = tp->total_retrans;
	r->data_segs_out = tp->data_segs_out;
	r->bytes_retrans = tp->bytes_retrans;
	r->bytes_sent = tp->bytes_sent;
	r->undo_marker = tp->undo_marker;
	r->snd_cwnd = tp->snd_cwnd;
	r->snd_ssthresh = tp->snd_ssthresh;
	r->snd_wnd = tp->snd_wnd;
	r->srtt_us = tp->srtt_us >> 3;
	r->dsack_dups = tp->dsack_dups;
	r->inode = BPF_CORE_READ(sk, sk_socket, file, f_inode, i_ino);
	/* else it was interrupted: by chance it may be the owner then, too */
	r->in_process = sk->sk_lock.owned && r->flow.owner_tgid &&
			bpf_get_current_pid_tgid() >> 32 == r->flow.owner_tgid;
}

static __always_inline __u8 role_of(const struct sock *sk)
{
	switch (sk->__sk_common.skc_state) {
	case TCP_SYN_SENT:
		return ROLE_CLIENT;
	case TCP_SYN_RECV:
		return ROLE_SERVER;
	default:
		return ROLE_UNKNOWN;
	}
}

static __noinline int on_retransmit(void *ctx, struct sock *sk, const struct sk_buff *skb, int err)
{
	const struct tcp_skb_cb *cb = (const struct tcp_skb_cb *)&skb->cb[0];
	struct retransmit r = { .kind = RETRANSMIT_SEGMENT, .err = err };
	struct sender *s;
	struct tcp_sock *tp;

	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp || !evidence_requested(sk, EVIDENCE_RETRANSMITS, role_of(sk), &r.flow))
		return 0;
	read_socket(sk, tp, &r);
	r.seq = BPF_CORE_READ(cb, seq);
	r.end_seq = BPF_CORE_READ(cb, end_seq);
	r.segs = BPF_CORE_READ(cb, tcp_gso_segs);
	r.sacked = BPF_CORE_READ(cb, sacked);
	r.tcp_flags = tcp_flags_of(cb);
	r.len = skb->len;
	s = sender_of(sk, tp, &r.flow, err ? 0 : r.segs, err ? 0 : r.len);
	if (!err)
		r.nth = count_resent(sk, tp->bytes_acked + (__u32)(r.seq - tp->snd_una), tp->bytes_acked);
	if (s && !err && r.ca_state >= TCP_CA_Recovery) {
		if (!s->episode_segs)
			s->episode_dups = r.dsack_dups;
		s->episode_segs += r.segs;
		s->can_undo |= r.undo_marker != 0;
	}
	deliver(ctx, &r, s);
	return 0;
}

/* tcp_retransmit_synack: `sk` is the listener, with Fast Open the child. */
static __noinline int on_synack(void *ctx, struct sock *sk, struct request_sock *req)
{
	struct retransmit r = {
		.kind = RETRANSMIT_SYNACK,
		.tcp_state = TCP_NEW_SYN_RECV,
		.tcp_flags = TCPHDR_SYN | TCPHDR_ACK,
		.segs = 1,
	};

	if (!evidence_requested_of(sk, (struct sock *)req, EVIDENCE_RETRANSMITS, ROLE_SERVER, &r.flow))
		return 0;
	r.seq = BPF_CORE_READ((struct tcp_request_sock *)req, snt_isn);
	r.end_seq = r.seq + 1;
	r.nth = req->num_retrans + 1;
	deliver(ctx, &r, NULL);
	return 0;
}

/* tcp_send_loss_probe: what it may send again comes as a retransmit. */
static __noinline int on_loss_probe(void *ctx, struct sock *sk)
{
	struct retransmit r = { .kind = RETRANSMIT_PROBE };
	struct tcp_sock *tp;

	if (!(options() & RETRANSMIT_OPTION_PROBES))
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp || !evidence_requested(sk, EVIDENCE_RETRANSMITS, ROLE_UNKNOWN, &r.flow))
		return 0;
	read_socket(sk, tp, &r);
	deliver(ctx, &r, NULL);
	return 0;
}

/*
 * An undo clears undo_marker before it leaves Recovery or Loss; a recovery that was needed leaves it as it was. What
 * the peer has already reported as received twice is not marked again.
 */
static __noinline int on_recovered(void *ctx, struct sock *sk, const struct tcp_sock *tp, struct sender *s)
{
	__u32 segs = s->episode_segs, reported = tp->dsack_dups - s->episode_dups;
	struct retransmit r = { .kind = RETRANSMIT_UNDO };
	bool undone = segs && s->can_undo && !tp->undo_marker;

	s->episode_segs = 0;
	s->can_undo = 0;
	if (!undone || !evidence_requested(sk, EVIDENCE_RETRANSMITS, ROLE_UNKNOWN, &r.flow))
		return 0;
	read_socket(sk, tp, &r);
	r.segs = segs > reported ? segs - reported : 0;
	deliver(ctx, &r, s);
	s->undone += r.segs;
	return 0;
}

/* tcp_cong_state_set: fires before the state is written. */
static __always_inline int on_cong_state(void *ctx, struct sock *sk, __u8 state)
{
	const struct inet_connection_sock *icsk;
	struct tcp_sock *tp;
	struct sender *s;

	if (state >= TCP_CA_Recovery)
		return 0;
	s = bpf_sk_storage_get(&senders, sk, 0, 0);
	tp = s ? bpf_skc_to_tcp_sock(sk) : NULL;
	if (!tp)
		return 0;
	icsk = &tp->inet_conn;
	return BPF_CORE_READ_BITFIELD_PROBED(icsk, icsk_ca_state) >= TCP_CA_Recovery ? on_recovered(ctx, sk, tp, s) : 0;
}

/* A tool shows what it alone tells of: duplicates, and the counters of what was sent again. */
static __noinline int report_counters(void *ctx, struct sock *sk, const struct tcp_sock *tp, struct sender *s,
				      __u32 retrans)
{
	struct retransmit r = { .kind = RETRANSMIT_SENT };

	if (evidence_requested(sk, EVIDENCE_RETRANSMITS, ROLE_UNKNOWN, &r.flow)) {
		read_socket(sk, tp, &r);
		r.total_retrans = retrans;
		deliver(ctx, &r, s);
	}
	return 0;
}

/* Count what the socket's counters have grown, if they have; `retrans` in place of total_retrans. */
static __always_inline int account_for(void *ctx, struct sock *sk, const struct tcp_sock *tp, struct sender *s,
				       __u32 retrans)
{
	if (!has_grown(tp, s, retrans))
		return 0;
	if (!is_tool())
		return count_in_plan(sk, tp, s, retrans);
	if (tp->dsack_dups == s->duplicates && retrans == s->segs_retrans)
		return 0;
	return report_counters(ctx, sk, tp, s, retrans);
}

/* The connection has been asked for, or is open: whose it is, and where its counters begin. */
static __noinline int on_beginning(struct sock *sk, bool open)
{
	struct flow_header flow = {};
	struct tcp_sock *tp;

	if (is_tool()) {
		if (!open)
			remember_owner(sk);
		return 0;
	}
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp || !evidence_requested(sk, EVIDENCE_RETRANSMITS, open ? role_of(sk) : ROLE_CLIENT, &flow))
		return 0;
	if (open)
		sender_of(sk, tp, &flow, 0, 0); /* its counters count from here */
	else
		remember_owner(sk);
	return 0;
}

/*
 * inet_sock_set_state, before the state is written. At CLOSE the counters are complete: a connection that its own end
 * resets loses them next (tcp_disconnect), and so does one whose socket connects again. For a tool the end of the socket
 * will do: what it shows has records.
 */
static __always_inline int on_state(struct sock *sk, int newstate)
{
	struct tcp_sock *tp;
	struct sender *s;

	if (newstate != TCP_SYN_SENT && newstate != TCP_ESTABLISHED && newstate != TCP_CLOSE)
		return 0;
	if (!is_tcp(sk))
		return 0;
	if (newstate == TCP_CLOSE) {
		s = bpf_sk_storage_get(&senders, sk, 0, 0);
		tp = s ? bpf_skc_to_tcp_sock(sk) : NULL;
		if (!tp || is_tool() || !has_grown(tp, s, tp->total_retrans))
			return 0;
		return count_in_plan(sk, tp, s, tp->total_retrans);
	}
	if (newstate == TCP_SYN_SENT) {
		bpf_sk_storage_delete(&senders, sk);
		bpf_sk_storage_delete(&resents, sk);
		if (is_tool())
			bpf_sk_storage_delete(&connections, sk);
	}
	return on_beginning(sk, newstate == TCP_ESTABLISHED);
}

/* tcp_destroy_sock */
static __always_inline int on_destroy(void *ctx, struct sock *sk)
{
	struct sender *s = bpf_sk_storage_get(&senders, sk, 0, 0);
	struct tcp_sock *tp;

	tp = s ? bpf_skc_to_tcp_sock(sk) : NULL;
	return tp ? account_for(ctx, sk, tp, s, tp->total_retrans) : 0;
}

/* A connection that is older than these programs, or than the request: its counters count from now. */
static __noinline int adopt(struct sock *sk, const struct tcp_sock *tp)
{
	struct flow_header flow = {};

	if (evidence_requested(sk, EVIDENCE_RETRANSMITS, ROLE_UNKNOWN, &flow))
		sender_of(sk, tp, &flow, 0, 0);
	return 0;
}

/* The plan has changed, the connection was decided on under the new one, and its counters are requested no more. */
static __noinline int is_given_up(struct sock *sk, struct sender *s)
{
	const struct connection *c = bpf_sk_storage_get(&connections, sk, 0, 0);
	const struct config *cfg = get_config();
	struct flow_header flow = {};

	if (!cfg || !c || c->generation != cfg->generation)
		return 0;
	s->generation = cfg->generation;
	return !evidence_requested(sk, EVIDENCE_RETRANSMITS, ROLE_UNKNOWN, &flow);
}

/*
 * Once a second over all connections of the plan, or of the tool. The socket is not locked: it may be between the
 * kernel's count of a segment and our record of it, which would then be counted twice. What no record tells of waits for
 * the next record, or for the end.
 */
static __always_inline int on_flush(void *ctx, struct sock *sk)
{
	struct sender *s = bpf_sk_storage_get(&senders, sk, 0, 0);
	const struct config *cfg = get_config();
	struct tcp_sock *tp;

	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp || !cfg)
		return 0;
	if (!s)
		return adopt(sk, tp);
	if (s->generation != cfg->generation && is_given_up(sk, s)) {
		bpf_sk_storage_delete(&senders, sk); /* what it sends meanwhile is nobody's */
		return 0;
	}
	if (tp->dsack_dups != s->duplicates || bpf_ktime_get_boot_ns() - s->counted_ns >= COUNT_NS)
		return account_for(ctx, sk, tp, s, s->segs_retrans);
	return 0;
}

SEC("tp_btf/tcp_retransmit_skb")
int BPF_PROG(retransmit__tp_btf, struct sock *sk, struct sk_buff *skb)
{
	return on_retransmit(ctx, sk, skb, retransmit_error(ctx));
}

SEC("tp_btf/tcp_retransmit_synack")
int BPF_PROG(synack__tp_btf, struct sock *sk, struct request_sock *req)
{
	return on_synack(ctx, sk, req);
}

SEC("fentry/tcp_send_loss_probe")
int BPF_PROG(loss_probe__fentry, struct sock *sk)
{
	return on_loss_probe(ctx, sk);
}

SEC("tp_btf/tcp_cong_state_set")
int BPF_PROG(cong_state__tp_btf, struct sock *sk, __u8 state)
{
	return on_cong_state(ctx, sk, state);
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(state__tp_btf, struct sock *sk, int oldstate, int newstate)
{
	return on_state(sk, newstate);
}

SEC("tp_btf/tcp_destroy_sock")
int BPF_PROG(destroy__tp_btf, struct sock *sk)
{
	return on_destroy(ctx, sk);
}

SEC("iter/bpf_sk_storage_map")
int flush(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	struct sock *sk = ctx->sk;

	return sk ? on_flush(ctx, sk) : 0;
}

char LICENSE[] SEC("license") = "GPL";
