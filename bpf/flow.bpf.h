/* SPDX-License-Identifier: GPL-2.0 */
/* flow.bpf.h: socket -> addresses, ports, namespace; and which target set, if any, the plan gives it. */
#ifndef LATENCYPROBE_FLOW_BPF_H
#define LATENCYPROBE_FLOW_BPF_H

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "kernel.h"
#include "core_fixes.bpf.h"
#include "address.bpf.h"
#include "maps.bpf.h"

/* Local and peer end; IPv4 and v4-mapped addresses look the same. Ports in host order. */
struct flow {
	__u8 local_addr[16];
	__u8 peer_addr[16];
	__u16 local_port;
	__u16 peer_port;
};

static __always_inline bool is_tcp(const struct sock *sk)
{
	__u16 family = sk->__sk_common.skc_family;

	return (family == AF_INET || family == AF_INET6) && sk->sk_protocol == IPPROTO_TCP;
}

/* Bytes of such a socket move past our hooks: another protocol on top (kernel TLS), a sockmap. It may become so. */
static __always_inline bool is_taken_over(const struct sock *sk, const struct tcp_sock *tp)
{
	return tp->inet_conn.icsk_ulp_ops || (__u64)sk->sk_user_data & SK_USER_DATA_PSOCK;
}

/* The same, and Multipath TCP and SMC: one of these that falls back to TCP has done so before it is ESTABLISHED. */
static __always_inline bool is_unsupported(const struct sock *sk, const struct tcp_sock *tp)
{
	if (bpf_core_field_exists(tp->is_mptcp) && tp->is_mptcp)
		return true;
	if (bpf_core_field_exists(tp->syn_smc) && tp->syn_smc)
		return true;
	return is_taken_over(sk, tp);
}

/* Not inline: clang would merge its loads with others, and the verifier accepts one kind of pointer per load. */
static __noinline void read_flow(const struct sock *sk, struct flow *flow)
{
	if (sk->__sk_common.skc_family == AF_INET) {
		map_ipv4(flow->local_addr, sk->__sk_common.skc_rcv_saddr);
		map_ipv4(flow->peer_addr, sk->__sk_common.skc_daddr);
	} else {
		__u32 *local = (__u32 *)flow->local_addr, *peer = (__u32 *)flow->peer_addr;

#pragma unroll
		for (int i = 0; i < 4; i++) {
			local[i] = sk->__sk_common.skc_v6_rcv_saddr.in6_u.u6_addr32[i];
			peer[i] = sk->__sk_common.skc_v6_daddr.in6_u.u6_addr32[i];
		}
	}
	flow->local_port = sk->__sk_common.skc_num;
	flow->peer_port = bpf_ntohs(sk->__sk_common.skc_dport);
}

static __always_inline __u32 find_rule(struct rule_key *key)
{
	__u32 *set = bpf_map_lookup_elem(&rules, key);

	return set ? *set : 0;
}

/* Target set for this end as the server. `adopted`: the role is a guess, so "any port" does not apply. */
static __always_inline __u32 find_server_rule(const struct flow *flow, __u32 group, bool adopted)
{
	struct rule_key key = { .group = group, .port = flow->local_port, .side = SIDE_LOCAL };
	__u32 set;

	if (!group)
		return 0;
	set = find_rule(&key);
	if (set || adopted)
		return set;
	key.port = 0;
	return find_rule(&key);
}

/* Target set for this end as the client: this address and port, any port of it, this port anywhere, anything. */
static __always_inline __u32 find_client_rule(const struct flow *flow, __u32 group)
{
	struct rule_key key = { .group = group, .port = flow->peer_port, .side = SIDE_PEER };
	__u32 set;

	if (!group)
		return 0;
	__builtin_memcpy(key.addr, flow->peer_addr, sizeof(key.addr));
	set = find_rule(&key);
	if (set)
		return set;
	key.port = 0;
	set = find_rule(&key);
	if (set)
		return set;
	__builtin_memset(key.addr, 0, sizeof(key.addr));
	key.port = flow->peer_port;
	set = find_rule(&key);
	if (set)
		return set;
	key.port = 0;
	return find_rule(&key);
}

/* The other end is a replica of this one, and the plan leaves out what they say on the server's port. */
static __always_inline bool is_replica(const struct scope *scope, const struct flow *flow, __u8 role)
{
	struct rule_key key = { .group = scope->server_group, .side = SIDE_MEMBER };

	if (!key.group)
		return false;
	__builtin_memcpy(key.addr, flow->peer_addr, sizeof(key.addr));
	key.port = role == ROLE_SERVER ? flow->local_port : flow->peer_port;
	if (find_rule(&key))
		return true;
	key.port = 0;
	return find_rule(&key);
}

/*
 * The plan's target set for this end, and its role if that is ROLE_UNKNOWN, which a rule of one side decides. Where both
 * sides have one, nothing does.
 */
static __always_inline __u32 find_target(const struct scope *scope, const struct flow *flow, __u8 *role)
{
	__u32 server_set = 0, client_set = 0;

	if (*role != ROLE_CLIENT)
		server_set = find_server_rule(flow, scope->server_group, *role == ROLE_UNKNOWN);
	if (*role != ROLE_SERVER)
		client_set = find_client_rule(flow, scope->client_group);
	if (server_set && client_set)
		return 0;
	if (*role == ROLE_UNKNOWN && (server_set || client_set))
		*role = server_set ? ROLE_SERVER : ROLE_CLIENT;
	return server_set ?: client_set;
}

#endif
