/* SPDX-License-Identifier: GPL-2.0 */
/*
 * handshake_table.bpf.h: the pending handshakes, as they appear packet by packet, and what becomes of them: the RTT, or
 * its bounds, and the record.
 */
#ifndef LATENCYPROBE_HANDSHAKE_TABLE_BPF_H
#define LATENCYPROBE_HANDSHAKE_TABLE_BPF_H

#include "handshake_packet.bpf.h"
#include "events.h"
#include "filter.bpf.h"
#include "handshake_counts.bpf.h"
#include "maps.bpf.h"

#define SENT 4 /* transmissions of which the timestamp is kept: Linux gives up after 7 SYNs, 6 SYN-ACKs */

/* Role: of our end, for on loopback and between two pods of a node both ends are ours. */
struct key {
	__u8 client_addr[16];
	__u8 server_addr[16];
	__u16 client_port;
	__u16 server_port;
	__u8 role;
	__u8 _pad[3];
};

struct transmission {
	__u64 ns;
	__u32 timestamp; /* of TCP */
	__u32 stamped;
};

/* A pending handshake. `sent`: what our end resends until it is answered: a client its SYN, a server its SYN-ACK. */
struct handshake_state {
	__u64 syn_ns; /* the first one */
	__u64 first_ns;
	__u64 last_ns;
	__u64 sock_cookie;
	__u64 cgroup_id;
	struct transmission sent[SENT]; /* the latest ones */
	__u32 n_sent;
	__u32 n_syn;
	__u32 client_isn;
	__u32 server_isn;
	__u32 syn_payload; /* bytes, of Fast Open */
	__u32 ifindex;	   /* only what passes here counts */
	__u32 outer;	   /* on its way in it had passed there before */
	__u32 simultaneous;
};

/* 65,536 pending handshakes: half a second of 100,000 a second over 500 ms. Full: new ones are refused and counted. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct key);
	__type(value, struct handshake_state);
} pending SEC(".maps");

struct ended {
	__u32 client_isn;
	__u32 server_isn;
};

/* 4,096 of the latest that ended: what comes again is not new. Nothing is lost with an entry. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct key);
	__type(value, struct ended);
} ended SEC(".maps");

/* How many pending entries a packet may end: by an RST or an ICMP error; by an ACK. 0 spares every packet a look-up. */
struct awaited {
	__u64 any;
	__u64 ack;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct awaited);
} awaited SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, TALLY_COUNT);
	__type(key, __u32);
	__type(value, __u64);
} tally SEC(".maps");

static __always_inline void count(__u32 what)
{
	__u64 *n = bpf_map_lookup_elem(&tally, &what);

	if (n)
		add(n, 1);
}

/* `from_client`: the packet goes from the client to the server. */
static __always_inline void make_key(struct key *key, const struct packet *p, __u8 role, bool from_client)
{
	__builtin_memcpy(key->client_addr, from_client ? p->src : p->dst, sizeof(key->client_addr));
	__builtin_memcpy(key->server_addr, from_client ? p->dst : p->src, sizeof(key->server_addr));
	key->client_port = from_client ? p->src_port : p->dst_port;
	key->server_port = from_client ? p->dst_port : p->src_port;
	key->role = role;
}

static __always_inline void fill_flow(struct flow_header *flow, const struct key *key, __u64 now_ns)
{
	bool client = key->role == ROLE_CLIENT;

	flow->boot_ns = now_ns;
	__builtin_memcpy(flow->local_addr, client ? key->client_addr : key->server_addr, sizeof(flow->local_addr));
	__builtin_memcpy(flow->peer_addr, client ? key->server_addr : key->client_addr, sizeof(flow->peer_addr));
	flow->local_port = client ? key->client_port : key->server_port;
	flow->peer_port = client ? key->server_port : key->client_port;
	flow->family = is_mapped(key->client_addr) ? 4 : 6;
	flow->role = key->role;
}

static __always_inline void note_sent(struct handshake_state *s, __u64 now_ns, const struct timestamps *ts)
{
	struct transmission *t = &s->sent[s->n_sent % SENT];

	if (!s->n_sent)
		s->first_ns = now_ns;
	s->last_ns = now_ns;
	s->n_sent++;
	t->ns = now_ns;
	t->timestamp = ts ? ts->value : 0;
	t->stamped = ts != 0;
}

/*
 * The RTT, from what was sent to now. Of several transmissions only the last one is surely the answered one where the
 * answer echoes its timestamp: an echo of an earlier one also comes when its first answer was lost, and then the answer
 * to the second one came so late. `with_data`: the client did not acknowledge at once.
 */
static __always_inline void judge(struct handshake *h, const struct handshake_state *s, __u64 now_ns, __u32 echo,
				  bool with_data)
{
	const struct transmission *last = &s->sent[(s->n_sent - 1) % SENT];
	__u64 from_ns = s->first_ns;
	__u32 same = 0;

	for (int i = 0; i < SENT; i++) {
		const struct transmission *t = &s->sent[i];

		if (i < s->n_sent && t->stamped && t->timestamp == echo) {
			from_ns = t->ns;
			same++;
		}
	}
	if (same != 1)
		from_ns = s->first_ns;
	if (!with_data && (s->n_sent == 1 || (same == 1 && from_ns == last->ns))) {
		h->rtt_ns = h->rtt_min_ns = h->rtt_max_ns = now_ns - s->last_ns;
		if (s->n_sent > 1)
			h->flags |= HANDSHAKE_TIMESTAMPS;
		return;
	}
	h->flags |= HANDSHAKE_AMBIGUOUS;
	h->rtt_min_ns = with_data ? 0 : now_ns - s->last_ns;
	h->rtt_max_ns = now_ns - from_ns;
}

/* Take a handshake out; false: another packet, on another CPU, has done it. */
static __always_inline bool forget(const struct key *key, const struct handshake_state *s)
{
	struct ended end = { .client_isn = s->client_isn, .server_isn = s->server_isn };
	bool with_ack = key->role == ROLE_SERVER || s->simultaneous;
	__u32 zero = 0;
	struct awaited *a = bpf_map_lookup_elem(&awaited, &zero);

	if (!a || bpf_map_delete_elem(&pending, key))
		return false;
	add(&a->any, -1);
	if (with_ack)
		add(&a->ack, -1);
	bpf_map_update_elem(&ended, key, &end, BPF_ANY);
	return true;
}

/* Report a handshake that has ended: `h` has its outcome and RTT. Never inline, for the 512 bytes of a frame. */
static __noinline void report(const struct key *key, const struct handshake_state *s, struct handshake *h)
{
	fill_flow(&h->flow, key, bpf_ktime_get_boot_ns());
	h->flow.sock_cookie = s->sock_cookie;
	h->flow.cgroup_id = s->cgroup_id;
	h->method = METHOD_TC;
	h->client_isn = s->client_isn;
	h->server_isn = s->server_isn;
	h->n_syn = s->n_syn;
	h->synack_retransmits = key->role == ROLE_SERVER && s->n_sent ? s->n_sent - 1 : 0;
	h->ifindex = s->ifindex;
	if (forget(key, s))
		count_and_emit(h);
}

/* This packet ends a handshake: it answers what our end sent. */
static __noinline void answered_by(struct __sk_buff *skb, const struct packet *p, const struct key *key,
				   const struct handshake_state *s, __u32 outcome)
{
	bool with_data = key->role == ROLE_SERVER && (p->payload || p->ack != s->server_isn + 1);
	__u64 now_ns = bpf_ktime_get_boot_ns();
	struct handshake h = { .outcome = outcome };
	struct timestamps ts = {};

	if (s->n_sent > 1)
		read_timestamps(skb, p, &ts);
	judge(&h, s, now_ns, ts.echo, with_data);
	report(key, s, &h);
}

static __noinline void failed(const struct key *key, const struct handshake_state *s, __u32 outcome)
{
	struct handshake h = { .outcome = outcome };

	report(key, s, &h);
}

#endif
