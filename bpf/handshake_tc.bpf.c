// SPDX-License-Identifier: GPL-2.0
/*
 * handshake_tc.bpf.c: how long connections took to open, and why some did not, docs/design/evidence.md, "Handshakes",
 * method `tc`: times of the packets themselves at the interfaces that a person names. Which end is ours follows from
 * the attach point: `outgoing` programs see what leaves it, at the egress of its own interface or at the ingress of a
 * pod's veth.
 */
#include "handshake_packet.bpf.h"
#include "events.h"
#include "maps.bpf.h"
#include "filter.bpf.h"
#include "handshake_table.bpf.h"

#define PASS_ON (-1) /* TCX_NEXT and TC_ACT_UNSPEC: whatever is attached behind us decides */

struct bpf_iter__bpf_map_elem {
	void *meta;
	void *map;
	void *key;
	void *value;
} __attribute__((preserve_access_index));

static __noinline bool is_requested(const struct key *key)
{
	struct evidence_filter *f;
	struct flow_header flow = {};
	__u32 zero = 0;

	f = bpf_map_lookup_elem(&evidence_filter, &zero);
	fill_flow(&flow, key, 0);
	return f && passes(f, &flow);
}

static __noinline void begin(struct __sk_buff *skb, const struct packet *p, const struct key *key)
{
	struct handshake_state s = {};
	struct awaited *a;
	__u32 zero = 0;

	a = bpf_map_lookup_elem(&awaited, &zero);
	if (!a)
		return;
	s.syn_ns = bpf_ktime_get_boot_ns();
	s.n_syn = 1;
	s.client_isn = p->seq;
	s.syn_payload = p->payload;
	s.ifindex = skb->ifindex;
	if (key->role == ROLE_CLIENT) {
		struct timestamps ts;

		s.sock_cookie = bpf_get_socket_cookie(skb);
		s.cgroup_id = bpf_skb_cgroup_id(skb);
		note_sent(&s, s.syn_ns, read_timestamps(skb, p, &ts) ? &ts : 0);
	}
	if (bpf_map_update_elem(&pending, key, &s, BPF_NOEXIST)) {
		count_lost(LOST_STATE);
		return;
	}
	add(&a->any, 1);
	if (key->role == ROLE_SERVER)
		add(&a->ack, 1);
}

/* A SYN of a pending handshake; false: it is another one's. */
static __always_inline bool syn_again(struct __sk_buff *skb, const struct packet *p, const struct key *key,
				      struct handshake_state *s)
{
	if (p->seq != s->client_isn)
		return false;
	if (skb->ifindex != s->ifindex) {
		/* on its way out it has passed the device nearest the pod; on its way in that one is still to come */
		if (key->role == ROLE_SERVER && skb->ifindex != s->outer && !s->n_sent) {
			s->outer = s->ifindex;
			s->ifindex = skb->ifindex;
		}
		return true;
	}
	s->n_syn++;
	if (p->payload > s->syn_payload)
		s->syn_payload = p->payload;
	if (key->role == ROLE_CLIENT) {
		struct timestamps ts;

		note_sent(s, bpf_ktime_get_boot_ns(), read_timestamps(skb, p, &ts) ? &ts : 0);
	}
	return true;
}

/* A SYN replaces an older one of the same addresses and ports. */
static __always_inline void replace(const struct key *key, const struct handshake_state *s)
{
	if (forget(key, s))
		count(TALLY_REPLACED);
}

static __noinline void on_syn(struct __sk_buff *skb, const struct packet *p, bool outgoing)
{
	struct key key = {};
	struct handshake_state *s;
	struct ended *before;
	struct awaited *a;
	__u32 zero = 0;

	/* the one that crosses it: of a simultaneous open; going out, our end had not answered and now connects */
	make_key(&key, p, outgoing ? ROLE_SERVER : ROLE_CLIENT, false);
	s = bpf_map_lookup_elem(&pending, &key);
	a = bpf_map_lookup_elem(&awaited, &zero);
	if (!a)
		return;
	if (s && skb->ifindex == s->ifindex) {
		if (outgoing) {
			replace(&key, s);
		} else {
			if (!s->simultaneous)
				add(&a->ack, 1);
			s->simultaneous = 1;
			s->server_isn = p->seq;
			return;
		}
	}
	make_key(&key, p, outgoing ? ROLE_CLIENT : ROLE_SERVER, true);
	s = bpf_map_lookup_elem(&pending, &key);
	if (s) {
		if (syn_again(skb, p, &key, s))
			return;
		replace(&key, s);
	}
	before = bpf_map_lookup_elem(&ended, &key);
	if (before && before->client_isn == p->seq)
		return; /* the network had kept it, or its sender continues in spite of an ICMP error */
	if (is_requested(&key))
		begin(skb, p, &key);
}

/* The handshake of our client that this incoming packet answers, if it does. */
static __always_inline struct handshake_state *answers(struct __sk_buff *skb, const struct packet *p, struct key *key)
{
	struct handshake_state *s;

	make_key(key, p, ROLE_CLIENT, false);
	s = bpf_map_lookup_elem(&pending, key);
	return s && skb->ifindex == s->ifindex ? s : 0;
}

static __always_inline bool acknowledges_syn(const struct packet *p, const struct handshake_state *s)
{
	return p->ack == s->client_isn + 1 || p->ack == s->client_isn + 1 + s->syn_payload;
}

static __noinline void on_synack_in(struct __sk_buff *skb, const struct packet *p)
{
	struct key key = {};
	struct handshake_state *s;
	struct ended *before;

	make_key(&key, p, ROLE_CLIENT, false);
	s = bpf_map_lookup_elem(&pending, &key);
	if (!s) {
		before = bpf_map_lookup_elem(&ended, &key);
		count(before && before->server_isn == p->seq ? TALLY_SYNACK_RETRANSMITS : TALLY_SYNACK_UNKNOWN);
		return;
	}
	if (skb->ifindex != s->ifindex)
		return;
	if (!acknowledges_syn(p, s)) {
		count(TALLY_SYNACK_MISMATCHED);
		return;
	}
	s->server_isn = p->seq;
	answered_by(skb, p, &key, s, s->simultaneous ? CONNECT_SIMULTANEOUS : CONNECT_OK);
}

static __noinline void on_synack_out(struct __sk_buff *skb, const struct packet *p)
{
	struct timestamps ts;
	struct key key = {};
	struct handshake_state *s;

	make_key(&key, p, ROLE_SERVER, false);
	s = bpf_map_lookup_elem(&pending, &key);
	if (!s) {
		make_key(&key, p, ROLE_CLIENT, true);
		if (!bpf_map_lookup_elem(&pending, &key)) /* else of a simultaneous open */
			count(TALLY_SYNACK_UNKNOWN);
		return;
	}
	if (skb->ifindex != s->ifindex || (s->n_sent && s->server_isn != p->seq))
		return;
	if (!s->n_sent)
		s->sock_cookie = bpf_get_socket_cookie(skb);
	s->server_isn = p->seq;
	note_sent(s, bpf_ktime_get_boot_ns(), read_timestamps(skb, p, &ts) ? &ts : 0);
}

static __noinline void on_ack_in(struct __sk_buff *skb, const struct packet *p)
{
	struct key key = {};
	struct handshake_state *s;

	make_key(&key, p, ROLE_SERVER, true);
	s = bpf_map_lookup_elem(&pending, &key);
	if (s) {
		if (skb->ifindex != s->ifindex || !s->n_sent || (__s32)(p->ack - s->server_isn) <= 0)
			return;
		answered_by(skb, p, &key, s, CONNECT_OK);
		return;
	}
	s = answers(skb, p, &key);
	if (s && s->simultaneous && acknowledges_syn(p, s))
		answered_by(skb, p, &key, s, CONNECT_SIMULTANEOUS);
}

/* Our client was refused, our server refused, or its client went away before it acknowledged. */
static __noinline void on_reset(struct __sk_buff *skb, const struct packet *p, bool outgoing)
{
	struct key key = {};
	struct handshake_state *s;

	if (!outgoing) {
		s = answers(skb, p, &key);
		if (s) {
			if (p->flags & ACK && acknowledges_syn(p, s))
				answered_by(skb, p, &key, s, CONNECT_REFUSED);
			return;
		}
	}
	make_key(&key, p, ROLE_SERVER, !outgoing);
	s = bpf_map_lookup_elem(&pending, &key);
	if (s && skb->ifindex == s->ifindex && (outgoing ? acknowledges_syn(p, s) : p->seq == s->client_isn + 1))
		failed(&key, s, outgoing ? CONNECT_REFUSED : CONNECT_ABORTED);
}

/* The ICMP error came to our client, or our end's firewall sends it. */
static __noinline void on_error(struct __sk_buff *skb, const struct packet *p, bool outgoing)
{
	struct key key = {};
	struct handshake_state *s;

	make_key(&key, p, outgoing ? ROLE_SERVER : ROLE_CLIENT, true);
	s = bpf_map_lookup_elem(&pending, &key);
	if (s && skb->ifindex == s->ifindex && p->seq == s->client_isn)
		failed(&key, s, CONNECT_UNREACHABLE);
}

/* `l3`: where layer 3 begins. Most packets are data: nothing more is done once their flags are read. */
static __always_inline int on_packet(struct __sk_buff *skb, __u32 l3, bool outgoing, bool pull)
{
	struct packet p = { .pull = pull };
	struct awaited *a;
	__u32 zero = 0;

	a = bpf_map_lookup_elem(&awaited, &zero);
	if (!a || !read_packet(skb, l3, a->any, &p))
		return PASS_ON;
	if (p.quoted)
		on_error(skb, &p, outgoing);
	else if (p.flags & SYN && !(p.flags & (FIN | RST)))
		p.flags &ACK ? outgoing ? on_synack_out(skb, &p) : on_synack_in(skb, &p) : on_syn(skb, &p, outgoing);
	else if (p.flags & RST && a->any)
		on_reset(skb, &p, outgoing);
	else if (p.flags & ACK && !outgoing && a->ack)
		on_ack_in(skb, &p);
	return PASS_ON;
}

/* Once a second: what nobody answered in config.answer_timeout_ns has failed. */
static __always_inline int on_flush(const void *found)
{
	const struct config *cfg = get_config();
	struct handshake_state *s;
	struct key key;

	if (!cfg || bpf_probe_read_kernel(&key, sizeof(key), found))
		return 0;
	s = bpf_map_lookup_elem(&pending, &key);
	if (s && bpf_ktime_get_boot_ns() - s->syn_ns > cfg->answer_timeout_ns)
		failed(&key, s, CONNECT_TIMEOUT);
	return 0;
}

SEC("tc")
int outgoing__ethernet(struct __sk_buff *skb)
{
	return on_packet(skb, ETH_HLEN, true, false);
}

SEC("tc")
int incoming__ethernet(struct __sk_buff *skb)
{
	return on_packet(skb, ETH_HLEN, false, false);
}

/* Devices without a header of their own: tun, WireGuard. */
SEC("tc")
int outgoing__bare(struct __sk_buff *skb)
{
	return on_packet(skb, 0, true, false);
}

SEC("tc")
int incoming__bare(struct __sk_buff *skb)
{
	return on_packet(skb, 0, false, false);
}

SEC("tc")
int outgoing__ethernet_pull(struct __sk_buff *skb)
{
	return on_packet(skb, ETH_HLEN, true, true);
}

SEC("tc")
int incoming__ethernet_pull(struct __sk_buff *skb)
{
	return on_packet(skb, ETH_HLEN, false, true);
}

SEC("iter/bpf_map_elem")
int flush(struct bpf_iter__bpf_map_elem *ctx)
{
	return ctx->key ? on_flush(ctx->key) : 0;
}

char LICENSE[] SEC("license") = "GPL";
