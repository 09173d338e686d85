/* SPDX-License-Identifier: GPL-2.0 */
/*
 * newest.bpf.h: a ring per CPU that overwrites its oldest record, for kernels whose BPF ring cannot. User space
 * (kernel/newest.py) gives it slots, reads them, and knows by the numbers of the records which it has missed.
 * Who includes it defines NEWEST, the record, and NEWEST_VALUE, a struct of its number and the record.
 */
#ifndef LATENCYPROBE_NEWEST_BPF_H
#define LATENCYPROBE_NEWEST_BPF_H

#include <bpf/bpf_helpers.h>
#include "events.h"

/* A slot is written and read under its lock: a reader never sees half a record. */
struct newest_slot {
	struct bpf_spin_lock lock;
	__u32 _pad;
	NEWEST_VALUE newest;
};

struct newest_cpu {
	struct bpf_spin_lock lock;
	__u32 _pad;
	struct newest_head head;
};

/* CPUs x slots; one entry unless a tool resizes it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct newest_slot);
} newest SEC(".maps");

/* 1,024 CPUs: twice what the largest nodes of today have. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct newest_cpu);
} newest_heads SEC(".maps");

/* False: this ring is not in use. A softirq program that comes between the two locks takes the next number. */
static __always_inline bool keep_newest(const NEWEST *record)
{
	__u32 cpu = bpf_get_smp_processor_id(), slots, at;
	struct newest_cpu *c = bpf_map_lookup_elem(&newest_heads, &cpu);
	struct newest_slot *slot;
	__u64 number;

	slots = c ? c->head.slots : 0;
	if (!slots)
		return false;
	bpf_spin_lock(&c->lock);
	number = ++c->head.written;
	bpf_spin_unlock(&c->lock);
	at = cpu * slots + (__u32)((number - 1) % slots);
	slot = bpf_map_lookup_elem(&newest, &at);
	if (!slot)
		return true; /* user space misses this number, and counts it */
	bpf_spin_lock(&slot->lock);
	slot->newest.number = number;
	slot->newest.record = *record;
	bpf_spin_unlock(&slot->lock);
	return true;
}

#endif
