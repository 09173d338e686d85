/* SPDX-License-Identifier: GPL-2.0 */
/*
 * tracker.bpf.h: the engine of all trackers, docs/design/tracker.md: something begins with a key (`tracker_in`) and ends
 * with the same key (`tracker_out`); what took longer than a threshold has a record. A row is an object of its own,
 * which defines first TRACKER (enum tracker), TRACKER_KEY (a type without padding), TRACKER_ENTRIES (room), TRACKER_STAYS
 * (the key is a tid; the entry is its task's own and stays until that ends: no other ever uses it), TRACKER_KIND(entry) and
 * TRACKER_KINDS (of the statistics), TRACKER_KEEPS (keep_ended() hears of all that ends, whatever the threshold),
 * TRACKER_MARKS (an entry has two words of the row's own).
 */
#ifndef LATENCYPROBE_TRACKER_BPF_H
#define LATENCYPROBE_TRACKER_BPF_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "events.h"
#include "lost.bpf.h"
#include "task.h"
#include "tracker_knobs.bpf.h"

struct entry_key {
	TRACKER_KEY of;
	__u64 nth; /* of the duplicates */
};
_Static_assert(sizeof(TRACKER_KEY) <= 64 && sizeof(TRACKER_KEY) % 8 == 0, "a key has at most 64 bytes");

struct entry {
	__u64 start_ns; /* 0: it has ended */
	__u64 payload[2];
	__u64 interrupted_ns; /* syscalls: it may go on, or has ended then */
	__u64 timed_out_ns;   /* start of the one whose timeout was told */
	__u32 tgid;
	__u32 tid;
	__u32 stacks;
	__u32 _pad;
#ifdef TRACKER_MARKS
	__u64 marks[2]; /* the row's own, of when it began */
#endif
};

/* Preallocated: nothing is allocated on the way, and what is full refuses. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, TRACKER_ENTRIES);
	__type(key, struct entry_key);
	__type(value, struct entry);
} entries SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, TRACKER_KINDS);
	__type(key, __u32);
	__type(value, struct tracker_statistics);
} statistics SEC(".maps");

/* The worst so far, with knobs.worst_threshold. */
struct worst {
	struct bpf_spin_lock lock;
	__u64 ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct worst);
} worst SEC(".maps");

/* 1 MiB: 11,900 records. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} tracked SEC(".maps");

#ifdef TRACKER_KEEPS
static __noinline int keep_ended(const struct tracker_knobs *k, const struct tracked *r);
#endif

static __noinline bool put(const struct tracker_knobs *k, struct tracked *r)
{
	r->tracker = TRACKER;
	if (r->flag != TRACKED_LET_GO && !within_limit(k->records_per_second, false)) {
		tell(TOLD_RATE_LIMITED);
		return false;
	}
	return emit_or_count(&tracked, r, sizeof(*r), k->wakeup_bytes);
}

static __always_inline void describe(struct tracked *r, const struct task_struct *task)
{
	r->tgid = task->tgid;
	r->tid = task->pid;
	r->cgroup_id = cgroup_of(task);
	bpf_probe_read_kernel(r->comm, sizeof(r->comm), task->comm);
}

/* It ends, and nobody hears of it, but for who keeps its stacks. */
static __noinline int let_go(const struct tracker_knobs *k, const struct entry *e)
{
	struct tracked r = { .flag = TRACKED_LET_GO };

	if (!e->stacks)
		return 0;
	r.start_ns = e->start_ns;
	r.tgid = e->tgid;
	r.tid = e->tid;
	put(k, &r);
	return 0;
}

/* Begin once more in an entry that is there. */
static __always_inline int begin_again(const struct tracker_knobs *k, struct entry *e, const struct entry *made)
{
	if (e->start_ns) {
		tell(TOLD_REPLACED);
		let_go(k, e);
	}
	__builtin_memcpy(e, made, sizeof(*e));
	return BEGUN_OK;
}

/* What an attempt that failed is. */
static __always_inline int refused(int error)
{
	if (!error)
		return BEGUN_OK;
	tell(TOLD_SKIPPED);
	return error == -EEXIST || error == -E2BIG ? BEGUN_FULL : BEGUN_ERR;
}

/*
 * Begin. unique: one that is open with this key is replaced; else there are up to LP_KEY_DUPLICATES of it. Returns enum
 * begun. `made` says when, whose and the payload; the key is looked at over its full length.
 */
static __always_inline int tracker_in(const struct tracker_knobs *k, struct entry_key *key, bool unique,
				      const struct entry *made)
{
	int error = -EEXIST;
	struct entry *e;
	__u32 i;

	if (!k->tracking_on)
		return BEGUN_DISABLED;
	if (unique) {
		key->nth = 0;
		e = bpf_map_lookup_elem(&entries, key);
		if (!e)
			error = bpf_map_update_elem(&entries, key, made, BPF_NOEXIST);
		if (!e && error == -EEXIST)
			e = bpf_map_lookup_elem(&entries, key);
		return e ? begin_again(k, e, made) : refused(error);
	}
	for (i = 0; i < LP_KEY_DUPLICATES && error == -EEXIST; i++) {
		key->nth = i;
		error = bpf_map_update_elem(&entries, key, made, BPF_NOEXIST);
	}
	return refused(error);
}

/* Whether it is worse than all before, if only that is asked for; then it is the worst now. */
static __noinline bool is_worst(__u64 duration_ns)
{
	__u32 zero = 0;
	struct worst *w = bpf_map_lookup_elem(&worst, &zero);
	bool is;

	if (!w)
		return false;
	bpf_spin_lock(&w->lock);
	is = duration_ns > w->ns;
	if (is)
		w->ns = duration_ns;
	bpf_spin_unlock(&w->lock);
	return is;
}

static __always_inline void count_statistics(__u32 kind, __u64 duration_ns)
{
	struct tracker_statistics *s = bpf_map_lookup_elem(&statistics, &kind);

	if (!s)
		return;
	if (!s->count || duration_ns < s->min_ns)
		s->min_ns = duration_ns;
	if (duration_ns > s->max_ns)
		s->max_ns = duration_ns;
	add(&s->count, 1);
	add(&s->total_ns, duration_ns);
}

/* It has ended: count it; true: it took long enough for a record, which has what the entry knows. */
static __always_inline bool tracker_end(const struct tracker_knobs *k, const struct entry *e, __u64 now_ns,
					struct tracked *r)
{
	r->start_ns = e->start_ns;
	r->duration_ns = now_ns > e->start_ns ? now_ns - e->start_ns : 0;
	r->payload[0] = e->payload[0];
	r->payload[1] = e->payload[1];
	r->stacks = e->stacks;
	r->tgid = e->tgid;
	r->tid = e->tid;
	count_statistics(TRACKER_KIND(e), r->duration_ns);
#ifdef TRACKER_KEEPS
	keep_ended(k, r);
#endif
	if (r->duration_ns > k->threshold_ns && (!k->worst_threshold || is_worst(r->duration_ns)))
		return true;
	r->flag = TRACKED_LET_GO;
	return false;
}

/* Take an entry out that has been found; false: it has ended, or another processor has just taken it. */
static __always_inline bool take_found(struct entry_key *key, struct entry *e, struct entry *taken)
{
	if (!e || !e->start_ns)
		return false;
	__builtin_memcpy(taken, e, sizeof(*taken));
#ifdef TRACKER_STAYS
	e->start_ns = 0;
	return true;
#else
	return !bpf_map_delete_elem(&entries, key);
#endif
}

static __always_inline bool take(struct entry_key *key, struct entry *taken)
{
	return take_found(key, bpf_map_lookup_elem(&entries, key), taken);
}

/*
 * End all that are open with the key, whose last task is `task`. id: which way. Returns how many ended, -1 if there was
 * none.
 */
static __always_inline int tracker_out(const struct tracker_knobs *k, struct entry_key *key, bool unique, __u8 id,
				       __u64 now_ns, const struct task_struct *task)
{
	int ended = 0;
	__u32 i;

	for (i = 0; i < (unique ? 1 : LP_KEY_DUPLICATES); i++) {
		struct tracked r = { .id = id };
		struct entry e;

		key->nth = i;
		if (!take(key, &e))
			continue;
		ended++;
		if (tracker_end(k, &e, now_ns, &r))
			describe(&r, task);
		if (r.flag == TRACKED_NORMAL || r.stacks)
			put(k, &r);
	}
	return ended ? ended : -1;
}

/* No entry of this key stays. */
static __always_inline int tracker_forget(struct entry_key *key)
{
	const struct tracker_knobs *k = get_knobs();
	struct entry *e = bpf_map_lookup_elem(&entries, key);

	if (!e)
		return 0;
	if (k && e->start_ns)
		let_go(k, e);
	bpf_map_delete_elem(&entries, key);
	return 0;
}

/*
 * The sweep: entries that are open for longer than a knob says. Its clock is the same, so a program that begins one
 * meanwhile may be ahead of it.
 */
static __always_inline int tracker_sweep(const struct entry_key *of, struct entry *e)
{
	const struct tracker_knobs *k = get_knobs();
	__u64 now_ns = bpf_ktime_get_boot_ns(), start_ns, open_ns;
	struct tracked r = {};
	struct entry_key key;

	if (!of || !e || !k)
		return 0;
	start_ns = e->start_ns;
	if (!start_ns || start_ns > now_ns || e->interrupted_ns)
		return 0;
	open_ns = now_ns - start_ns;
	r.start_ns = start_ns;
	r.duration_ns = open_ns;
	r.payload[0] = e->payload[0];
	r.payload[1] = e->payload[1];
	r.stacks = e->stacks;
	r.tgid = e->tgid;
	r.tid = e->tid;
	if (k->timeout_ns && open_ns > k->timeout_ns && e->timed_out_ns != start_ns) {
		e->timed_out_ns = start_ns;
		r.flag = TRACKED_TIMEOUT;
		tell(TOLD_TIMEOUTS);
		put(k, &r);
	}
	if (k->gc_threshold_ns && open_ns > k->gc_threshold_ns) {
		__builtin_memcpy(&key, of, sizeof(key));
#ifdef TRACKER_STAYS
		e->start_ns = 0;
#else
		bpf_map_delete_elem(&entries, &key);
#endif
		r.flag = TRACKED_GC;
		tell(TOLD_COLLECTED);
		put(k, &r);
	}
	return 0;
}

SEC("iter/bpf_map_elem")
int flush(struct bpf_iter__bpf_map_elem *ctx)
{
	return tracker_sweep(ctx->key, ctx->value);
}

#ifdef TRACKER_STAYS
/* exec() by a thread that is not the first one: it gets the first one's tid, and its own is free. */
SEC("tp_btf/sched_process_exec")
int BPF_PROG(executed__tp_btf, struct task_struct *task, int old_tid)
{
	struct entry_key key = { .of = old_tid };

	return old_tid == task->pid ? 0 : tracker_forget(&key);
}
#endif

#endif
