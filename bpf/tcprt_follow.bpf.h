/* SPDX-License-Identifier: GPL-2.0 */
/*
 * tcprt_follow.bpf.h: which connections TCP-RT follows, and on which side, docs/design/evidence.md, "TCP-RT
 * connections": those of a plan's targets that ask for it, or those of a tool's ports.
 */
#ifndef LATENCYPROBE_TCPRT_FOLLOW_BPF_H
#define LATENCYPROBE_TCPRT_FOLLOW_BPF_H

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "events.h"
#include "evidence.bpf.h"
#include "kernel.h"
#include "maps.bpf.h"
#include "tcprt_connection.bpf.h"

/*
 * Ports that a tool follows, one bit each: words 0 to 1023 for the local end, then as many for the peer's. The bit of
 * port 0, which no connection has, marks that there is a choice; without it the role decides.
 */
#define PORT_WORDS 1024
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * PORT_WORDS);
	__type(key, __u32);
	__type(value, __u64);
} tcprt_ports SEC(".maps");

static __always_inline bool has_port(__u16 port, __u32 first_word)
{
	__u32 word = first_word + (port >> 6);
	__u64 *bits = bpf_map_lookup_elem(&tcprt_ports, &word);

	return bits && *bits >> (port & 63) & 1;
}

/* Side of a connection that this end is, 0 = none; first match wins: docs/design/evidence.md, "TCP-RT connections". */
static __always_inline __u8 side_of(__u16 local_port, __u16 peer_port, __u8 role)
{
	if (has_port(0, 0))
		return has_port(local_port, 0) ? TCPRT_LOCAL : has_port(peer_port, PORT_WORDS) ? TCPRT_PEER : 0;
	return role == ROLE_SERVER ? TCPRT_LOCAL : role == ROLE_CLIENT ? TCPRT_PEER : 0;
}

/*
 * Decide whether this connection is followed, and begin. NULL: it is not. `role`: ROLE_UNKNOWN for one whose beginning
 * was not seen, and then a refusal is remembered: the next event would decide again.
 */
static __noinline struct tcprt_connection *follow(struct sock *sk, struct tcp_sock *tp, __u8 role)
{
	const struct config *cfg = get_config();
	__u64 generation = cfg ? cfg->generation : 0, create;
	struct tcprt_connection *c;
	struct flow_header flow = {};
	struct seen s;
	bool partial = role == ROLE_UNKNOWN || tp->bytes_received; /* or data in the SYN */
	__u8 side = 0;

	if (evidence_requested(sk, EVIDENCE_TCPRT, role, &flow))
		side = side_of(flow.local_port, flow.peer_port, flow.role);
	create = side || role == ROLE_UNKNOWN ? BPF_SK_STORAGE_GET_F_CREATE : 0;
	c = bpf_sk_storage_get(&tasks, sk, 0, create);
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

/* The state of a followed connection, or NULL. `adopts`: one whose beginning was not seen may be followed, too. */
static __always_inline struct tcprt_connection *connection_of(struct sock *sk, bool adopts)
{
	struct tcprt_connection *c = bpf_sk_storage_get(&tasks, sk, 0, 0);
	const struct config *cfg = get_config();
	struct tcp_sock *tp;

	if (!cfg)
		return NULL;
	if (c && c->generation == cfg->generation)
		return c->followed ? c : NULL;
	if (!c && !(adopts && may_adopt(sk)))
		return NULL;
	tp = bpf_skc_to_tcp_sock(sk);
	return tp ? follow(sk, tp, ROLE_UNKNOWN) : NULL;
}

#endif
