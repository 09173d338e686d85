/* SPDX-License-Identifier: GPL-2.0 */
/*
 * exchange_sampling.bpf.h: when exchanges end faster than config.records_per_window, slow and failed ones still send
 * their records, and of the others a sample, the same at both hosts. Counts are made of all:
 * docs/design/measurement.md, "Record sampling".
 */
#ifndef LATENCYPROBE_EXCHANGE_SAMPLING_BPF_H
#define LATENCYPROBE_EXCHANGE_SAMPLING_BPF_H

#include <bpf/bpf_helpers.h>
#include "events.h"

/* Records that were within the limit lately: a bucket that leaks `records_per_window` in each window. */
static struct {
	__u64 window;
	__u64 records;
	__u64 _pad[14]; /* two cache lines of its own: every CPU writes here */
} rate __attribute__((aligned(128)));

/*
 * Is this record above the limit? Processors that enter a window at once may both let the bucket leak: the limit is one
 * of load, what is sampled out is counted exactly.
 */
static __always_inline bool above_rate(const struct exchange *x, const struct config *cfg)
{
	/* the stamps of one that was flushed are old: it counts for the window that there is */
	__u64 window = (x->role == ROLE_SERVER ? x->send_end_ns : x->read_last_ns) >> LP_WINDOW_SHIFT, leaked;

	if (!cfg->records_per_window)
		return false;
	if (window > rate.window) {
		leaked = (window - rate.window) * cfg->records_per_window;
		rate.window = window;
		rate.records = rate.records > leaked ? rate.records - leaked : 0;
	}
	if (rate.records >= (__u64)cfg->records_per_window * LP_BURST_WINDOWS)
		return true;
	__sync_fetch_and_add(&rate.records, 1);
	return false;
}

/*
 * A plain mix of where the two messages lie in their streams: the same at both ends. Sequence numbers too, or all first
 * exchanges of connections would share one fate. Multipliers: those of splitmix64 (Steele, Lea, Flood, OOPSLA 2014).
 */
static __always_inline bool sampled_alike(const struct exchange *x)
{
	__u64 mixed = (x->request_offset + ((__u64)x->request_seq << 32)) * 0xbf58476d1ce4e5b9ULL;

	mixed = (mixed ^ mixed >> 31) + x->response_offset + ((__u64)x->response_seq << 32);
	mixed = (mixed ^ mixed >> 30) * 0x94d049bb133111ebULL;
	return mixed >> (64 - LP_ADJUSTED_COUNT_BITS) == 0;
}

#endif
