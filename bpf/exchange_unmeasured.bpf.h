/* SPDX-License-Identifier: GPL-2.0 */
/*
 * exchange_unmeasured.bpf.h: the mark of a socket that the plan was asked about and that is no target's: when it was asked,
 * so that nobody asks again before the plan changes, and who had connected, which a later plan may want to know.
 */
#ifndef LATENCYPROBE_EXCHANGE_UNMEASURED_BPF_H
#define LATENCYPROBE_EXCHANGE_UNMEASURED_BPF_H

#include <bpf/bpf_helpers.h>
#include "events.h"

/* config.generation << ROLE_BITS | enum role; 0: none. */
typedef __u64 mark_t;
#define ROLE_BITS 2

#ifdef CONNECTIONS_IN_HASH /* as connections are: storage.bpf.h */

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64);
	__type(value, mark_t);
} unmeasured SEC(".maps");

static __always_inline mark_t mark_of(struct sock *sk)
{
	__u64 key = (__u64)sk;
	const mark_t *mark = bpf_map_lookup_elem(&unmeasured, &key);

	return mark ? *mark : 0;
}

/* Without room for it the plan is asked each time. */
static __always_inline void put_mark(struct sock *sk, mark_t mark)
{
	__u64 key = (__u64)sk;

	bpf_map_update_elem(&unmeasured, &key, &mark, BPF_ANY);
}

static __always_inline void forget_mark(struct sock *sk)
{
	__u64 key = (__u64)sk;

	bpf_map_delete_elem(&unmeasured, &key);
}

#else

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, mark_t);
} unmeasured SEC(".maps");

static __always_inline mark_t mark_of(struct sock *sk)
{
	const mark_t *mark = bpf_sk_storage_get(&unmeasured, sk, 0, 0);

	return mark ? *mark : 0;
}

/* Without room for it the plan is asked each time. */
static __always_inline void put_mark(struct sock *sk, mark_t mark)
{
	mark_t *kept = bpf_sk_storage_get(&unmeasured, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);

	if (kept)
		*kept = mark;
}

static __always_inline void forget_mark(struct sock *sk)
{
	bpf_sk_storage_delete(&unmeasured, sk);
}

#endif

static __always_inline void mark_unmeasured(struct sock *sk, __u64 generation, __u8 role)
{
	put_mark(sk, generation << ROLE_BITS | role);
}

/* By the plan of this generation it is no target's. */
static __always_inline bool is_unmeasured(struct sock *sk, __u64 generation)
{
	mark_t mark = mark_of(sk);

	return mark && mark >> ROLE_BITS == generation;
}

static __always_inline __u8 marked_role(struct sock *sk)
{
	return mark_of(sk) & ((1 << ROLE_BITS) - 1);
}

#endif
