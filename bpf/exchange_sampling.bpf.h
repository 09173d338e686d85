/* SPDX-License-Identifier: GPL-2.0 */
/*
 * exchange_sampling.bpf.h: when exchanges end faster than config.records_per_window, slow and failed ones still send
 * their records, and of the others one of 2^level, the same at both hosts; of a ring that fills up each namespace has a
 * share. Counts are made of all: docs/design/measurement.md, "Record sampling".
 */
#ifndef LATENCYPROBE_EXCHANGE_SAMPLING_BPF_H
#define LATENCYPROBE_EXCHANGE_SAMPLING_BPF_H

#include <bpf/bpf_helpers.h>
#include "events.h"
#include "lost.bpf.h"
#include "maps.bpf.h"

/*
 * Records of late that were neither slow nor failed: a bucket that leaks `records_per_window` in each window. `level`
 * follows from it. Who sends a record or begins a window writes here; who is sampled out, on whatever CPU, only reads. A
 * section of its own makes it a map, which objects share.
 */
static struct {
	__u64 window;
	__u64 records;
	__u32 level;
	__u32 _pad[27]; /* two cache lines of its own */
} rate SEC(".data.rate") __attribute__((aligned(128)));

/* 0 while the bucket has room for a burst; then one more for each window's worth above it. */
static __always_inline void set_level(__u32 records_per_window)
{
	__u64 records = rate.records, burst = (__u64)records_per_window * LP_BURST_WINDOWS, level = 0;

	if (records >= burst)
		level = 1 + (records - burst) / records_per_window;
	rate.level = level < LP_SAMPLING_LEVEL_MAX ? level : LP_SAMPLING_LEVEL_MAX;
}

/*
 * A plain mix of where the two messages lie in their streams: the same at both ends. Sequence numbers too, or all first
 * exchanges of connections would share one fate. Of a call of HTTP/2, which one end may have given up before the other
 * answered, in place of the answer where its direction began. Multipliers: those of splitmix64 (Steele, Lea, Flood,
 * OOPSLA 2014).
 */
static __always_inline __u64 mixed_place(const struct exchange *x)
{
	__u64 offset = x->stream_id ? 0 : x->response_offset;
	__u32 seq = x->response_seq - (__u32)(x->response_offset - offset);
	__u64 mixed = (x->request_offset + ((__u64)x->request_seq << 32)) * 0xbf58476d1ce4e5b9ULL;

	mixed = (mixed ^ mixed >> 31) + offset + ((__u64)seq << 32);
	return (mixed ^ mixed >> 30) * 0x94d049bb133111ebULL;
}

/* Records of one namespace in a window while the ring was more than half full. */
struct share {
	__u64 window;
	__u64 records;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1024); /* as target_sets, each of which may be of another namespace */
	__type(key, __u32);
	__type(value, struct share);
} shares SEC(".maps");

/*
 * The window in which an exchange ended; without that stamp, as of a client's that was read by splice or of a one-way
 * message, of the last one that it has. The stamps of one that was flushed are old.
 */
static __always_inline __u64 window_of(const struct exchange *x)
{
	__u64 ended_ns = x->role == ROLE_SERVER ? x->send_end_ns : x->read_last_ns;

	/* without a branch, which the verifier would follow both ways */
	ended_ns |= x->ready_last_ns & (0 - ((ended_ns - 1) >> 63));
	ended_ns |= x->send_start_ns & (0 - ((ended_ns - 1) >> 63));
	return ended_ns >> LP_WINDOW_SHIFT;
}

/*
 * Half of the ring is anybody's. The other half is shared out: who has had config.share_records of it in a window has
 * no more until the next one. So whoever fills the ring, slow or failed exchanges of others find room.
 */
static __always_inline bool within_share(void *ring, const struct exchange *x, const struct config *cfg)
{
	__u64 half = 2 * (__u64)cfg->wakeup_bytes, window = window_of(x);
	__u32 index = x->target_set;
	struct target_set *set;
	struct share *mine;

	if (!cfg->share_records || bpf_ringbuf_query(ring, BPF_RB_AVAIL_DATA) < half)
		return true;
	set = bpf_map_lookup_elem(&target_sets, &index);
	if (!set)
		return true;
	index = set->share;
	mine = bpf_map_lookup_elem(&shares, &index);
	if (!mine)
		return true;
	if (window > mine->window) {
		mine->window = window;
		mine->records = 0;
	}
	add(&mine->records, 1);
	return *(volatile __u64 *)&mine->records <= cfg->share_records;
}

/*
 * Does this exchange, neither slow nor failed, send its record? It then has the level in its flags. Who is kept at one
 * level is kept at all below. Processors that enter a window at once may both let the bucket leak, and set a level that
 * is a record old: the limit is one of load, what is sampled out is counted exactly.
 */
static __always_inline bool sampled(struct exchange *x, const struct config *cfg)
{
	__u64 window = window_of(x), leaked; /* one that was flushed counts for the window that there is */
	__u32 limit = cfg->records_per_window, level;

	if (!limit)
		return true;
	if (window > rate.window) {
		leaked = (window - rate.window) * limit;
		rate.window = window;
		rate.records = rate.records > leaked ? rate.records - leaked : 0;
		set_level(limit);
	}
	level = *(volatile __u32 *)&rate.level; /* once: others may set it meanwhile */
	if (level && mixed_place(x) >> (64 - level))
		return false;
	__sync_fetch_and_add(&rate.records, 1);
	set_level(limit);
	x->flags |= level << LP_SAMPLING_LEVEL_SHIFT;
	return true;
}

#endif
