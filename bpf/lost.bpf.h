/* SPDX-License-Identifier: GPL-2.0 */
/* lost.bpf.h: a record goes into its ring or is counted: the loss counters of every object. */
#ifndef LATENCYPROBE_LOST_BPF_H
#define LATENCYPROBE_LOST_BPF_H

#include <stdbool.h>
#include <bpf/bpf_helpers.h>
#include "events.h"

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, LOST_COUNT);
	__type(key, __u32);
	__type(value, __u64);
} lost SEC(".maps");

/* Atomic where no other CPU adds, too: softirq programs interrupt those of process context. */
static __always_inline void add(__u64 *counter, __u64 n)
{
	__sync_fetch_and_add(counter, n);
}

static __always_inline void count_lost_n(__u32 reason, __u64 more)
{
	__u64 *n = bpf_map_lookup_elem(&lost, &reason);

	if (n)
		add(n, more);
}

static __always_inline void count_lost(__u32 reason)
{
	count_lost_n(reason, 1);
}

/* Wake the reader early only when the ring has filled up. */
static __always_inline __u64 wakeup_flags(void *ring, __u32 wakeup_bytes)
{
	return bpf_ringbuf_query(ring, BPF_RB_AVAIL_DATA) >= wakeup_bytes ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP;
}

/* Copy a record into a ring or count it as lost. */
static __always_inline bool emit_or_count(void *ring, void *record, __u64 size, __u32 wakeup_bytes)
{
	if (!bpf_ringbuf_output(ring, record, size, wakeup_flags(ring, wakeup_bytes)))
		return true;
	count_lost(LOST_RING_FULL);
	return false;
}

#endif
