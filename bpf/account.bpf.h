/* SPDX-License-Identifier: GPL-2.0 */
/* account.bpf.h: an ended exchange -> stages, counts, one record. Runs without any lock, on the hook's own copy. */
#ifndef LATENCYPROBE_ACCOUNT_BPF_H
#define LATENCYPROBE_ACCOUNT_BPF_H

#include <bpf/bpf_helpers.h>
#include "events.h"
#include "histogram.h"
#include "maps.bpf.h"

/*
 * 16 MiB hold 83,000 records of 192 + 8 bytes: 0.8 s at 100,000 records/s, eight drain intervals. The reader may
 * ask for another size.
 */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16 << 20);
} exchanges SEC(".maps");

/*
 * 1,024 (target set, role, owner), allocated when first seen: about 4.9 KiB per CPU each, so a node of 64 CPUs with
 * 50 containers in use takes 16 MiB.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 1024);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct counts_key);
	__type(value, struct exchange_counts);
} counts SEC(".maps");

static const struct exchange_counts no_counts;

static __always_inline struct exchange_counts *counts_of(struct counts_key *key)
{
	struct exchange_counts *n = bpf_map_lookup_elem(&counts, key);

	if (n)
		return n;
	bpf_map_update_elem(&counts, key, &no_counts, BPF_NOEXIST);
	n = bpf_map_lookup_elem(&counts, key);
	if (n)
		return n;
	count_lost(LOST_COUNTS_FULL);
	key->owner = 0;
	n = bpf_map_lookup_elem(&counts, key);
	if (n)
		return n;
	bpf_map_update_elem(&counts, key, &no_counts, BPF_NOEXIST);
	return bpf_map_lookup_elem(&counts, key);
}

/* Index into exchange_counts.histogram; see histogram.h. Not static: the verifier then looks at it once only. */
__noinline __u32 bucket_of(__u64 ns)
{
	__u32 exponent = 63, below = 0;
	__s32 bucket;

	if (!ns)
		return 0;
#pragma unroll
	for (int step = 32; step; step >>= 1) {
		if (!(ns >> (64 - step))) {
			ns <<= step;
			exponent -= step;
		}
	}
#pragma unroll
	for (int step = 16; step; step >>= 1) {
		if (histogram_bounds[(below + step - 1) & 31] < ns)
			below += step;
	}
	if (histogram_bounds[below & 31] < ns)
		below++;
	bucket = (__s32)(32 * exponent + below) + HISTOGRAM_OCTAVE_BASE - LP_HISTOGRAM_MIN;
	if (bucket < 0)
		return 0;
	return bucket < LP_HISTOGRAM_BUCKETS ? bucket : LP_HISTOGRAM_BUCKETS - 1;
}

/* One stage: from the cut point to `stamp`, or nothing when the stamp is missing or lies before it. */
static __always_inline __u64 cut(__u64 *point, __u64 stamp, __u32 *flags)
{
	__u64 ns = 0;

	if (stamp > *point) {
		ns = stamp - *point;
		*point = stamp;
	} else if (stamp && stamp < *point) {
		*flags |= FLAG_STAGE_OVERLAP;
	}
	return ns;
}

/* Stages in the order of measurement.md section 4; returns their sum, the duration. */
static __always_inline __u64 cut_stages(struct exchange *x, __u64 stage[LP_STAGES])
{
	__u64 start, point;

	if (x->role == ROLE_SERVER) {
		start = point = x->ready_first_ns;
		stage[0] = cut(&point, x->ready_last_ns, &x->flags);
		stage[1] = cut(&point, x->read_last_ns, &x->flags);
		stage[2] = cut(&point, x->send_start_ns, &x->flags);
		stage[3] = cut(&point, x->send_end_ns, &x->flags);
	} else {
		start = point = x->send_start_ns;
		stage[0] = cut(&point, x->send_end_ns, &x->flags);
		stage[1] = cut(&point, x->ready_first_ns, &x->flags);
		stage[2] = cut(&point, x->ready_last_ns, &x->flags);
		stage[3] = cut(&point, x->read_last_ns, &x->flags);
	}
	return point - start;
}

static __always_inline void count_slow(struct exchange_counts *n, __u32 i, const __u64 stage[LP_STAGES])
{
	__u32 dominant = 0;
	__u64 longest = 0;

	if (i >= LP_THRESHOLDS)
		return;
#pragma unroll
	for (__u32 s = 0; s < LP_STAGES; s++) {
		add(&n->over_stage_ns[i][s], stage[s]);
		if (stage[s] > longest) {
			longest = stage[s];
			dominant = s;
		}
	}
	add(&n->over_dominant[i][dominant & (LP_STAGES - 1)], 1);
}

static __always_inline void count_event(struct exchange_counts *n, struct exchange *x, __u32 thresholds_of)
{
	struct target_set *set = bpf_map_lookup_elem(&target_sets, &thresholds_of);
	__u64 stage[LP_STAGES], duration_ns = cut_stages(x, stage);
	__u32 bucket = bucket_of(duration_ns);

	add(&n->duration_sum_ns, duration_ns);
	if (x->outcome < OUTCOME_COUNT)
		add(&n->outcomes[x->outcome], 1);
	if (bucket < LP_HISTOGRAM_BUCKETS)
		__sync_fetch_and_add(&n->histogram[bucket], 1);
	if (!set)
		return;
	for (__u32 i = 0; i < LP_THRESHOLDS; i++) {
		if (!set->thresholds_ns[i])
			break;
		if (duration_ns <= set->thresholds_ns[i]) {
			add(&n->within[i], 1);
			if (x->outcome != OUTCOME_OK)
				add(&n->failed_within[i], 1);
		} else {
			count_slow(n, i, stage);
		}
	}
}

/* Count an ended exchange and send its record. */
static __noinline void account(struct exchange *x, const struct config *cfg)
{
	struct counts_key key = {
		.owner = cfg->owner_by_process ? (x->writer_tgid ?: x->reader_tgid) : x->cgroup_id,
		.target_set = x->target_set,
		.role = x->role,
	};
	struct exchange_counts *n = counts_of(&key);

	if (!x->send_end_ns && x->send_start_ns) {
		x->send_end_ns = x->send_start_ns;
		x->flags |= FLAG_SEND_APPROX;
	}
	if (!n) {
		count_lost(LOST_COUNTS);
	} else {
		if (x->conn_class < CLASS_COUNT)
			add(&n->classes[x->conn_class], 1);
		if (x->excluded == EXCLUDED_NONE)
			count_event(n, x, x->target_set);
		else if (x->excluded < EXCLUDED_COUNT)
			add(&n->excluded[x->excluded], 1);
	}
	if (!emit(&exchanges, x, sizeof(*x), cfg) && n)
		add(&n->lost_records, 1);
}

#endif
