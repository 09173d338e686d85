/* SPDX-License-Identifier: GPL-2.0 */
/*
 * exchange_connection_in_hash.bpf.h: the functions of storage.bpf.h where tracing programs have no socket storage, no
 * spin lock and no socket cookie (Linux before 5.11): a hash by the socket's address. Such addresses are used again: an
 * entry is forgotten with its socket, and once more where a socket begins.
 */
#ifndef LATENCYPROBE_EXCHANGE_CONNECTION_IN_HASH_BPF_H
#define LATENCYPROBE_EXCHANGE_CONNECTION_IN_HASH_BPF_H

#include <bpf/bpf_helpers.h>
#include "maps.bpf.h"

/* 65,536 sockets of targets at a time, 936 bytes each while they last. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC); /* or an element could be another's while a program still works on it */
	__type(key, __u64);
	__type(value, struct connection);
} connections SEC(".maps");

/* Some 2 us, all that the verifier's budget has room for: a program is done in less, unless it is interrupted. */
#define LOCK_TRIES 32

static const __u8 no_connection[sizeof(struct connection)];

static __always_inline struct connection *find_connection(struct sock *sk)
{
	__u64 key = (__u64)sk;

	return bpf_map_lookup_elem(&connections, &key);
}

static __always_inline struct connection *make_connection(struct sock *sk)
{
	__u64 key = (__u64)sk;

	bpf_map_update_elem(&connections, &key, no_connection, BPF_NOEXIST);
	return bpf_map_lookup_elem(&connections, &key);
}

static __always_inline void forget_connection(struct sock *sk)
{
	__u64 key = (__u64)sk;

	bpf_map_delete_elem(&connections, &key);
	forget_mark(sk);
}

/* What is at the address of a socket that begins is of one that is gone, or of its own last connection. */
static __always_inline void forget_earlier(struct sock *sk)
{
	forget_connection(sk);
}

static __always_inline void renew_connection(struct sock *sk)
{
}

/*
 * Whoever finds the count at 1 after adding to it is alone; nobody else can, until that 1 is taken away. These kernels
 * have no add that returns its result and no way to keep interrupts out: one on this processor, amid the work on the
 * same connection, cannot wait for it and goes without. Adding is a full barrier on x86; on arm64 these kernels cannot
 * run our programs.
 */
static __noinline bool lock_connection(struct connection *c)
{
	for (int i = 0; i < LOCK_TRIES; i++) {
		__sync_fetch_and_add(&c->lock, 1);
		if (*(volatile __u32 *)&c->lock == 1)
			return true;
		__sync_fetch_and_add(&c->lock, -1);
	}
	count_lost(LOST_RECURSION);
	return false;
}

static __always_inline void unlock_connection(struct connection *c)
{
	__sync_fetch_and_add(&c->lock, -1);
}

/* The boot time at which we met the socket, and the processor: unique for two years. */
static __always_inline __u64 cookie_of(struct sock *sk, const struct connection *c)
{
	if (c->current.sock_cookie)
		return c->current.sock_cookie;
	return bpf_ktime_get_boot_ns() << 8 | (bpf_get_smp_processor_id() & 0xff);
}

#endif
