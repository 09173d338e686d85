/* SPDX-License-Identifier: GPL-2.0 */
/* maps.bpf.h: what all signals share: the plan in the kernel; its losses are in lost.bpf.h. */
#ifndef LATENCYPROBE_MAPS_BPF_H
#define LATENCYPROBE_MAPS_BPF_H

#include <bpf/bpf_helpers.h>
#include "events.h"
#include "lost.bpf.h"

/* 16,384 cgroups: 250 pods x 8 containers and their inner cgroups, with room for a node of many sidecars. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64);
	__type(value, struct scope);
} scopes SEC(".maps");

/*
 * 131,072 rules: groups x (ports, endpoints or replicas), old and new ones while a plan comes into force; pods with equal
 * rules share a group. So callers may dial, and a node may run replicas of, a target of 5,000 pods with two ports and
 * two addresses.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 131072);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct rule_key);
	__type(value, __u32);
} rules SEC(".maps");

/* 1,024 distinct combinations of targets on one node. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct target_set);
} target_sets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct config);
} config SEC(".maps");

static __always_inline struct config *get_config(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&config, &zero);
}

/* A time of the kernel's monotonic clock as boot time. */
static __always_inline __u64 as_boot_ns(__u64 monotonic_ns)
{
	const struct config *cfg = get_config();

	return cfg ? monotonic_ns + cfg->boot_offset_ns : monotonic_ns;
}

/* Now, in boot time: what bpf_ktime_get_boot_ns() returns, for 12 ns less. */
static __always_inline __u64 now_ns(void)
{
	return as_boot_ns(bpf_ktime_get_ns());
}

/*
 * The counts of slot->key in a map of such, of this CPU's shard, made when they are first asked for, as `none`. Other CPUs
 * add to them too. Beyond the room for them everything counts under owner 0. NULL: nor is there room for that.
 */
static __always_inline void *counts_in(void *map, struct counts_slot *slot, const void *none)
{
	void *n;

	slot->shard = bpf_get_smp_processor_id() % LP_SHARDS;
	n = bpf_map_lookup_elem(map, slot);
	if (n)
		return n;
	bpf_map_update_elem(map, slot, none, BPF_NOEXIST);
	n = bpf_map_lookup_elem(map, slot);
	if (n)
		return n;
	slot->key.owner = 0;
	n = bpf_map_lookup_elem(map, slot);
	if (!n) {
		bpf_map_update_elem(map, slot, none, BPF_NOEXIST);
		n = bpf_map_lookup_elem(map, slot);
	}
	count_lost(n ? LOST_COUNTS_FULL : LOST_COUNTS);
	return n;
}

static __always_inline bool emit(void *ring, void *record, __u64 size, const struct config *cfg)
{
	return emit_or_count(ring, record, size, cfg->wakeup_bytes);
}

#endif
