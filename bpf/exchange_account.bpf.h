/* SPDX-License-Identifier: GPL-2.0 */
/* exchange_account.bpf.h: an ended exchange -> stages, counts, one record. Runs without a lock, on the hook's copy. */
#ifndef LATENCYPROBE_EXCHANGE_ACCOUNT_BPF_H
#define LATENCYPROBE_EXCHANGE_ACCOUNT_BPF_H

#include <bpf/bpf_helpers.h>
#include "events.h"
#include "histogram.h"
#include "maps.bpf.h"
#include "exchange_sampling.bpf.h"
#include "exchange_unsent.bpf.h"
#include "exchange_verdict.bpf.h"

/*
 * 16 MiB hold 72,000 records of 224 + 8 bytes: 0.7 s at 100,000 records/s, three drain intervals. The reader may
 * ask for another size.
 */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16 << 20);
} exchanges SEC(".maps");

/*
 * User space makes room for as many shards as there are CPUs for. An entry takes 8 KiB of the kernel's memory, once a CPU
 * of its shard counts there: with 50 containers in use 13 MiB at most.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, LP_COUNTS_SLOTS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct counts_slot);
	__type(value, struct exchange_counts);
} counts SEC(".maps");

static const struct exchange_counts no_counts;

/* Of each target set: what ended and is in no count, or was never followed, as far as it is known. See `enum lost`. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1024); /* as target_sets */
	__type(key, __u32);
	__type(value, __u64);
} unaccounted SEC(".maps");

static __always_inline void count_unaccounted(__u32 target_set, __u64 more)
{
	__u64 *n = bpf_map_lookup_elem(&unaccounted, &target_set);

	if (n)
		add(n, more);
}

static __always_inline struct exchange_counts *counts_of(struct counts_slot *slot)
{
	return counts_in(&counts, slot, &no_counts);
}

/* 1 if a < b, without a branch, which the verifier would follow both ways. a, b < 2^63. */
static __always_inline __u32 less(__u64 a, __u64 b)
{
	return (a - b) >> 63;
}

/* Index into exchange_counts.histogram; see histogram.h. The lowest bit lost in comparing is below any real bound. */
static __always_inline __u32 bucket_of(__u64 ns)
{
	__u64 filled = ns, n;
	__u32 exponent, below;
	__s32 bucket;

	filled |= filled >> 1;
	filled |= filled >> 2;
	filled |= filled >> 4;
	filled |= filled >> 8;
	filled |= filled >> 16;
	filled |= filled >> 32;
	exponent = histogram_exponents[(filled - (filled >> 1)) * HISTOGRAM_EXPONENT_FACTOR >> 58];
	n = ns << (63 - (exponent & 63));
	below = histogram_guesses[n >> 56 & 127];
	below += less(histogram_bounds[below & 31] >> 1, n >> 1) & (below < 32);
	bucket = (__s32)(32 * exponent + below) + HISTOGRAM_OCTAVE_BASE - LP_HISTOGRAM_MIN;
	if (bucket < 0)
		return 0;
	return bucket < LP_HISTOGRAM_BUCKETS ? bucket : LP_HISTOGRAM_BUCKETS - 1;
}

/*
 * One stage: from the cut point to `stamp`, or nothing when the stamp is missing or lies before it. Without a branch,
 * as less().
 */
static __always_inline __u64 cut(__u64 *point, __u64 stamp, __u32 *flags)
{
	__u64 ns = (stamp - *point) & -(__u64)less(*point, stamp);

	*flags |= FLAG_STAGE_OVERLAP * (less(stamp, *point) & less(0, stamp));
	*point += ns;
	return ns;
}

/*
 * Stages of a half, in the order of docs/design/measurement.md, "Stages"; their sum is its duration. Returns the index
 * of the longest.
 */
static __always_inline __u32 cut_stages(struct exchange *x, __u64 *ns)
{
	bool server = x->role == ROLE_SERVER;
	__u64 point = server ? x->ready_first_ns : x->send_start_ns;
	__u32 dominant = 0;

	ns[0] = cut(&point, server ? x->ready_last_ns : x->send_end_ns, &x->flags);
	ns[1] = cut(&point, server ? x->read_last_ns : x->ready_first_ns, &x->flags);
	ns[2] = cut(&point, server ? x->send_start_ns : x->ready_last_ns, &x->flags);
	ns[3] = cut(&point, server ? x->send_end_ns : x->read_last_ns, &x->flags);
	if (ns[1] > ns[0])
		dominant = 1;
	if (ns[2] > ns[dominant & (LP_STAGES - 1)])
		dominant = 2;
	if (ns[3] > ns[dominant & (LP_STAGES - 1)])
		dominant = 3;
	return dominant;
}

/* True: it was slow or failed, and its record is never sampled out. */
static __always_inline bool count_event(struct exchange_counts *n, struct exchange *x, __u64 *ns)
{
	__u32 index = x->target_set, bucket;
	struct target_set *set = bpf_map_lookup_elem(&target_sets, &index);
	bool failed = x->outcome != OUTCOME_OK;
	__u32 dominant = cut_stages(x, ns);
	__u64 duration_ns = ns[0] + ns[1] + ns[2] + ns[3];

	add(&n->duration_sum_ns, duration_ns);
	if (x->outcome < OUTCOME_COUNT)
		add(&n->outcomes[x->outcome], 1);
	bucket = bucket_of(duration_ns);
	barrier_var(bucket); /* or clang merges its bound into a form that the verifier cannot follow */
	if (bucket < LP_HISTOGRAM_BUCKETS)
		__sync_fetch_and_add(&n->histogram[bucket], 1);
	if (!set)
		return failed;
	for (__u32 i = 0; i < LP_THRESHOLDS; i++) {
		__u64 threshold_ns = set->thresholds_ns[i];

		if (!threshold_ns)
			break;
		if (duration_ns <= threshold_ns) {
			add(&n->within[i], 1);
			if (failed)
				add(&n->failed_within[i], 1);
			continue;
		}
		for (__u32 stage = 0; stage < LP_STAGES; stage++)
			add(&n->over_stage_ns[i][stage], ns[stage]);
		add(&n->over_dominant[i][dominant & (LP_STAGES - 1)], 1);
	}
	return failed || duration_ns > set->slow_ns;
}

/*
 * Count an ended exchange and send its record. `ns`: room for its stages. True: the other end has found that requests
 * come before their turn.
 */
static __always_inline int count_and_emit(struct exchange *x, __u64 *ns)
{
	const struct config *cfg = get_config(); /* not passed on: the stack is full */
	struct counts_slot slot = {};
	struct exchange_counts *n;
	bool overlaps, notable = false;

	if (!x || !cfg)
		return 0;
	overlaps = share_verdict(x);
	slot.key.owner = cfg->owner_by_process ? (x->writer_tgid ?: x->reader_tgid) : x->cgroup_id;
	slot.key.target_set = x->target_set;
	slot.key.role = x->role;
	n = counts_of(&slot);
	if (!x->send_end_ns && x->send_start_ns) {
		x->send_end_ns = x->send_start_ns;
		x->flags |= FLAG_SEND_APPROX;
	}
	if (n) {
		if (x->conn_class < CLASS_COUNT)
			add(&n->classes[x->conn_class], 1);
		if (x->excluded == EXCLUDED_NONE)
			notable = count_event(n, x, ns);
		else if (x->excluded < EXCLUDED_COUNT)
			add(&n->excluded[x->excluded], 1);
	} else {
		count_unaccounted(x->target_set, 1);
	}
	if (n && !notable && !sampled(x, cfg)) {
		add(&n->sampled_out_records, 1);
		return overlaps;
	}
	if (within_share(&exchanges, x, cfg)) {
		if (emit(&exchanges, x, sizeof(*x), cfg))
			return overlaps;
	} else {
		count_lost(LOST_THROTTLED);
	}
	if (n)
		add(&n->lost_records, 1);
	return overlaps;
}

/* drift: e5069b9c23b3 ("bpf: Support pointers in global function args"), v5.12
 * newer: a function that is not static is verified once, not once per path to it
 * older: the same, if it takes no pointers: account() hands its exchange over in a map
 * test:  as for CONNECTIONS_IN_HASH (storage.bpf.h)
 * drop:  with the last supported kernel before 5.12
 */
#ifdef CONNECTIONS_IN_HASH

struct accounted {
	struct exchange x;
	__u64 ns[LP_STAGES];
};

/* Exchanges that programs on each processor account for; each of them has interrupted the one before. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 4); /* how many programs; those of process, softirq and interrupt */
	__type(key, __u32);
	__type(value, struct accounted);
} accounted SEC(".maps");

__noinline int account_of(__u32 depth)
{
	struct accounted *a = bpf_map_lookup_elem(&accounted, &depth);

	return a ? count_and_emit(&a->x, a->ns) : 0;
}

static __always_inline int account(struct exchange *x, struct unsent *note)
{
	__u32 depth = 0, *programs = bpf_map_lookup_elem(&accounted, &depth);
	struct accounted *a;
	int overlaps = 0;

	if (!programs)
		return 0;
	__sync_fetch_and_add(programs, 1);
	depth = *(volatile __u32 *)programs;
	a = bpf_map_lookup_elem(&accounted, &depth);
	if (a) {
		a->x = *x;
		overlaps = account_of(depth);
	} else {
		count_lost(LOST_COUNTS);
		count_unaccounted(x->target_set, 1);
	}
	depth = 0;
	programs = bpf_map_lookup_elem(&accounted, &depth); /* again: no room on the stack to keep it */
	if (programs)
		__sync_fetch_and_add(programs, -1);
	return overlaps;
}

#else

__noinline int account(struct exchange *x, struct unsent *note)
{
	__u64 ns[LP_STAGES];

	if (x && note && note->reason)
		tell_unsent(x, note);
	return count_and_emit(x, ns);
}

#endif

/* Turns that found `ended` in use are lost. */
static __always_inline void count_overrun(struct connection *c)
{
	__u8 overrun = c->overrun;

	c->overrun = 0;
	if (overrun) {
		count_lost_n(LOST_RECURSION, overrun);
		count_unaccounted(c->current.target_set, overrun);
	}
}

/*
 * Account for what has ended, without the lock. As account(). Who is just finding `ended` in use, on another processor, is
 * counted the next time, or where the socket ends; with connections in a hash the next time alone.
 */
static __always_inline int account_ended(struct connection *c)
{
	int overlaps = account(&c->ended, &c->unsent);

	barrier();
	c->ended_used = 0;
	barrier();
	count_overrun(c);
	return overlaps;
}

/* The same, and go on with the lock. False: it is not to be had again. */
static __always_inline bool publish(struct connection *c, bool ended)
{
	if (!ended)
		return true;
	unlock_connection(c);
	account_ended(c);
	return lock_connection(c);
}

#endif
