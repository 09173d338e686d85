/* SPDX-License-Identifier: GPL-2.0 */
/*
 * evidence.bpf.h: what all signals of evidence share: whether a socket's is requested, and the header of its record. In
 * an agent the plan and the connections are the maps of exchange.bpf.c; a tool has a filter in their place.
 */
#ifndef LATENCYPROBE_EVIDENCE_BPF_H
#define LATENCYPROBE_EVIDENCE_BPF_H

#include <bpf/bpf_helpers.h>
#include "events.h"
#include "filter.bpf.h"
#include "flow.bpf.h"
#include "kernel.h"
#include "maps.bpf.h"
#include "storage.bpf.h"

/* Who connected a socket: the one moment that is surely in its process's context. */
struct owner {
	__u32 tgid;
	__u32 tid;
	__u8 comm[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct owner);
} owners SEC(".maps");

/* For where the current task is the socket's: CLOSE -> SYN_SENT. */
static __always_inline void remember_owner(struct sock *sk)
{
	struct owner *o = bpf_sk_storage_get(&owners, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	__u64 pid_tgid = bpf_get_current_pid_tgid();

	if (!o)
		return;
	o->tgid = pid_tgid >> 32;
	o->tid = pid_tgid;
	bpf_get_current_comm(o->comm, sizeof(o->comm));
}

/*
 * Fill `flow` for a full socket; false: its evidence is not requested. `role`: of a socket that is not ESTABLISHED yet,
 * else ROLE_UNKNOWN. In a plan a socket of no target costs one look-up. `end`: `sk`, or of a listener the request
 * socket that the addresses are of; its cookie becomes that of its child.
 */
static __noinline bool evidence_requested_of(struct sock *sk, struct sock *end, __u32 signal, __u8 role,
					     struct flow_header *flow)
{
	struct connection *c = bpf_sk_storage_get(&connections, sk, 0, 0);
	const struct config *cfg = get_config();
	const struct scope *scope;
	struct target_set *t;
	struct owner *owner;
	struct evidence_filter *f;
	struct flow live = {};
	__u32 zero = 0, set = 0;

	f = bpf_map_lookup_elem(&evidence_filter, &zero);
	if (!cfg || !f)
		return false;
	flow->cgroup_id = sock_cgroup_id(sk);
	if (c && c->current.local_port) {
		set = c->target_set;
		role = c->current.role;
		__builtin_memcpy(flow->local_addr, c->current.local_addr, sizeof(flow->local_addr));
		__builtin_memcpy(flow->peer_addr, c->current.peer_addr, sizeof(flow->peer_addr));
		flow->local_port = c->current.local_port;
		flow->peer_port = c->current.peer_port;
	} else {
		read_flow(end, &live);
		__builtin_memcpy(flow->local_addr, live.local_addr, sizeof(flow->local_addr));
		__builtin_memcpy(flow->peer_addr, live.peer_addr, sizeof(flow->peer_addr));
		flow->local_port = live.local_port;
		flow->peer_port = live.peer_port;
		if (f->mode == MATCH_PLAN) {
			if (is_unmeasured(sk, cfg->generation))
				return false;
			scope = bpf_map_lookup_elem(&scopes, &flow->cgroup_id);
			set = find_target(scope ? scope : &cfg->host, &live, &role);
		}
	}
	flow->target_set = set;
	flow->role = role;
	if (f->mode == MATCH_PLAN) {
		if (c && (c->own || c->generation == NEVER_MEASURED))
			return false;
		t = set ? bpf_map_lookup_elem(&target_sets, &set) : NULL;
		if (!t || !(t->evidence & signal))
			return false;
	}
	flow->boot_ns = bpf_ktime_get_boot_ns();
	flow->sock_cookie = bpf_get_socket_cookie(end);
	flow->netns_ino = sk->__sk_common.skc_net.net->ns.inum;
	flow->family = is_mapped(flow->peer_addr) ? 4 : 6;
	owner = bpf_sk_storage_get(&owners, sk, 0, 0);
	if (owner) {
		flow->owner_tgid = owner->tgid;
		flow->owner_tid = owner->tid;
		__builtin_memcpy(flow->owner_comm, owner->comm, sizeof(flow->owner_comm));
	} else if (c) {
		flow->owner_tgid = c->current.writer_tgid ? c->current.writer_tgid : c->current.reader_tgid;
		flow->owner_tid = c->current.writer_tgid ? c->current.writer_tid : c->current.reader_tid;
	}
	return f->mode == MATCH_PLAN || passes(f, flow);
}

static __always_inline bool evidence_requested(struct sock *sk, __u32 signal, __u8 role, struct flow_header *flow)
{
	return evidence_requested_of(sk, sk, signal, role, flow);
}

#endif
