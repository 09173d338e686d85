/* SPDX-License-Identifier: GPL-2.0 */
/*
 * exchange_census.bpf.h: how many connections are followed, as those count that begin and end and as the flush finds
 * them. A connection whose end no program saw, and with it the exchange that was open on it, is missing from the latter:
 * its storage went with its socket. User space takes the difference (kernel/unseen_ends.py). None that is there may be
 * missing: a beginning is counted once the flush can find the connection, and an end before it finds it no more.
 */
#ifndef LATENCYPROBE_EXCHANGE_CENSUS_BPF_H
#define LATENCYPROBE_EXCHANGE_CENSUS_BPF_H

#include <bpf/bpf_helpers.h>
#include "events.h"
#include "exchange_account.bpf.h"
#include "storage.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, CENSUS_COUNT);
	__type(key, __u32);
	__type(value, __u64);
} census SEC(".maps");

#ifdef CONNECTIONS_IN_HASH /* which no flush goes through */

static __always_inline void count_in_census(__u32 what)
{
}

static __always_inline void follow(struct connection *c, __u32 target_set)
{
}

static __always_inline void unfollow(struct connection *c)
{
}

static __always_inline void see_end(struct sock *sk, bool gone)
{
}

#else

static __always_inline void count_in_census(__u32 what)
{
	__u64 *n = bpf_map_lookup_elem(&census, &what);

	if (n)
		add(n, 1);
}

/* Under the connection's lock; count CENSUS_BEGUN after that. */
static __always_inline void follow(struct connection *c, __u32 target_set)
{
	c->followed = target_set != 0;
}

/* Its end was seen, or no target has it any more. */
static __noinline void unfollow(struct connection *c)
{
	__u32 what = CENSUS_ENDED;
	__u64 *ended = bpf_map_lookup_elem(&census, &what);

	if (ended && lock_connection(c)) {
		if (c->followed)
			add(ended, 1);
		c->followed = 0;
		unlock_connection(c);
	}
	RETURN_NOTHING;
}

/* The socket leaves, or is gone: then nothing is open any more, and nobody comes who would count. */
static __always_inline void see_end(struct sock *sk, bool gone)
{
	struct connection *c = find_connection(sk);

	if (!c)
		return;
	if (gone)
		count_overrun(c);
	if (gone || c->phase == PHASE_IDLE)
		unfollow(c);
}

#endif

#endif
