/* SPDX-License-Identifier: GPL-2.0 */
/* core_fixes.bpf.h: kernel drift, one accessor per change. */
#ifndef LATENCYPROBE_CORE_FIXES_BPF_H
#define LATENCYPROBE_CORE_FIXES_BPF_H

#include <bpf/bpf_core_read.h>
#include "kernel.h"

/* drift: 8520e224f547 ("bpf, cgroups: Fix cgroup v2 fallback on v1/v2 mixed mode"), v5.15
 * newer: sock_cgroup_data::cgroup, a pointer
 * older: sock_cgroup_data::val, the pointer; or with one of its lowest bits set, data of cgroup v1: then in no cgroup
 * test:  bpf_core_field_exists(struct sock_cgroup_data, cgroup)
 * drop:  with the last supported kernel before 5.15
 */
struct sock_cgroup_data___packed {
	__u64 val;
} __attribute__((preserve_access_index));

static __always_inline __u64 sock_cgroup_id(const struct sock *sk)
{
	__u64 packed;

	if (bpf_core_field_exists(sk->sk_cgrp_data.cgroup))
		return sk->sk_cgrp_data.cgroup->kn->id;
	packed = BPF_CORE_READ((struct sock_cgroup_data___packed *)&sk->sk_cgrp_data, val);
	return packed & 3 ? 0 : BPF_CORE_READ((struct cgroup *)packed, kn, id);
}

/* drift: ad892e912b84 ("tcp: trace retransmit failures in tcp_retransmit_skb"), v6.17
 * newer: tcp_retransmit_skb fires for every attempt and passes its error as the third argument
 * older: two arguments; fires for what was sent
 * test:  struct trace_event_raw_tcp_retransmit_skb exists; older ones share trace_event_raw_tcp_event_sk_skb
 * drop:  with the last supported kernel before 6.17
 */
struct trace_event_raw_tcp_retransmit_skb {
	int err;
};

static __always_inline int retransmit_error(const __u64 *ctx)
{
	return bpf_core_type_exists(struct trace_event_raw_tcp_retransmit_skb) ? (int)ctx[2] : 0;
}

/* drift: tcp_skb_cb::tcp_flags gained the AE bit of accurate ECN, between v6.12 and v6.18
 * newer: 16 bits
 * older: 8 bits
 * test:  the size of the field, by which it is read
 * drop:  with the last supported kernel that has 8 bits
 */
static __always_inline __u16 tcp_flags_of(const struct tcp_skb_cb *cb)
{
	return BPF_CORE_READ_BITFIELD_PROBED(cb, tcp_flags);
}

/* drift: a35b9af4ec2c ("bpf: Add a kfunc for generic type cast"), v6.2
 * newer: a cast that costs nothing
 * older: a helper, 13 ns
 * test:  the kernel's function bpf_rdonly_cast
 * drop:  with the last supported kernel before 6.2
 */
extern void *bpf_rdonly_cast(const void *object, __u32 btf_id) __ksym __weak;

/* The same socket; NULL, in older kernels, if it is none of TCP, which the caller knows that it is. */
static __always_inline struct tcp_sock *tcp_sock_of(struct sock *sk)
{
#ifndef CONNECTIONS_IN_HASH /* in kernels that know no such functions */
	if (bpf_rdonly_cast)
		return bpf_rdonly_cast(sk, bpf_core_type_id_kernel(struct tcp_sock));
#endif
	return bpf_skc_to_tcp_sock(sk);
}

/* drift: e9aae8beba82 ("bpf: Memory allocator for local storage"), v6.4
 * newer: storage of tasks is taken from memory set aside, and from 7.0 on without a lock: also where a switch holds its own
 * older: from kmalloc, which may wake a task up, for which a switch holds the lock
 * test:  bpf_local_storage_map::bpf_ma exists; 7.1 and newer have no field that tells, but the locks of v6.15
 * drop:  with the last supported kernel before 6.4
 */
struct bpf_local_storage_map___allocating {
	bool bpf_ma;
} __attribute__((preserve_access_index));

struct rqspinlock_held {
};

static __always_inline bool storage_may_be_made_anywhere(void)
{
	struct bpf_local_storage_map___allocating *map = (void *)0;

	return bpf_core_field_exists(map->bpf_ma) || bpf_core_type_exists(struct rqspinlock_held);
}

#endif
