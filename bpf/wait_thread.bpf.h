/* SPDX-License-Identifier: GPL-2.0 */
/*
 * wait_thread.bpf.h: what is kept of watched processes and their threads. A process is watched from the first request on
 * that one of its threads reads for a target that asks for waits, until it ends or runs another program.
 *
 * A thread's state is its own: hooks touch it from the thread itself, or from the switch to it or from it. What others
 * tell it, they add to its entry in `readers`.
 */
#ifndef LATENCYPROBE_WAIT_THREAD_BPF_H
#define LATENCYPROBE_WAIT_THREAD_BPF_H

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "core_fixes.bpf.h"
#include "events.h"
#include "task.h"
#include "maps.bpf.h"

#define EVIDENCE_WAITS (EVIDENCE_SYSCALLS | EVIDENCE_OFFCPU)

/* Watched processes in each slot, by the low bits of the tgid: so a foreign task costs one load. */
#define WATCHED_SLOTS 8192
__u32 watched[WATCHED_SLOTS];

struct process {
	__u64 generation; /* of the plan by which it was last asked for */
	__u64 cgroup_id;  /* of the socket */
	__u64 begun;	  /* requests that its threads have read */
	__u64 cookie;	  /* of the socket of the last one */
	__u32 target_set;
	__u32 open; /* of those: not answered yet */
};

/* 16,384 watched processes on a node. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct process);
} processes SEC(".maps");

struct blocked {
	__u64 ns;
	__u32 count;
	__s32 nr;
};

struct thread {
	__u64 key; /* of `readers`; 0: it has read no request */
	__u64 cgroup_id;
	/* the wait that it is in */
	__u64 out_ns; /* 0: none that anybody wants to know of */
	__u64 out_run_delay;
	__u64 out_throttled;
	__u64 clock_ns;	 /* boot time less the clock of the CPU's queue, when it left */
	__u64 out_begun; /* of the process, and how many were open */
	__u32 out_open;
	__u32 out_state;
	__s32 out_nr;
	struct waker waker;
	__u8 woken;
	__u8 walks; /* enum wait_flags of its user stacks */
	__u8 user_frames;
	__u8 waker_frames;
	/* the request that it serves */
	__u32 open; /* requests that it has read, and that nobody has answered as far as it knows */
	__u64 cookie;
	__u64 read_ns;
	__u64 off_ns;
	__u64 ready_ns;
	__u64 throttled_ns;
	__u64 preempted_ns;
	__u64 other_ns;
	__u64 switches; /* of the thread, by the kernel's count, when it read; those seen since are taken off */
	__u32 target_set;
	__u8 serving;
	__u8 shared;	  /* it serves several at once: none of them is known to be what it works for */
	__u8 user_stacks; /* there is room for them, and its target asks for them */
	__u8 _pad;
	__u64 lock_ns; /* its longest wait for a futex of which it is known who ended it */
	struct waker lock_waker;
	__u64 at[2]; /* see by_interrupt() */
	struct blocked blocked[LP_WAIT_CALLS];
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread);
} threads SEC(".maps");

/* Of threads that read requests of a target which asks for user stacks, of the wait that they are in. */
struct user_stacks {
	__u64 own[LP_USER_FRAMES];
	__u64 waker[LP_USER_FRAMES];
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct user_stacks);
} user_stacks SEC(".maps");

/* By thread.key: requests that it had read and others have ended. 65,536 threads that read requests on a node. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64);
	__type(value, __u64);
} readers SEC(".maps");

/* enum call_kind, by number. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, LP_SYSCALLS);
	__type(key, __u32);
	__type(value, __u32);
} call_kinds SEC(".maps");

static const struct process no_process;
static const __u64 none_ended;

static __always_inline bool maybe_watched(const struct task_struct *task)
{
	return *(volatile __u32 *)&watched[(__u32)task->tgid % WATCHED_SLOTS];
}

static __always_inline void watch_slot(__u32 tgid, __s32 more)
{
	__sync_fetch_and_add(&watched[tgid % WATCHED_SLOTS], more);
}

/* Find the process or watch it from now on. NULL: there is no room, which is counted. */
static __always_inline struct process *watch(__u32 tgid)
{
	struct process *p = bpf_map_lookup_elem(&processes, &tgid);

	if (p)
		return p;
	if (!bpf_map_update_elem(&processes, &tgid, &no_process, BPF_NOEXIST))
		watch_slot(tgid, 1);
	p = bpf_map_lookup_elem(&processes, &tgid);
	if (!p)
		count_lost(LOST_STATE);
	return p;
}

static __always_inline void unwatch(__u32 tgid)
{
	if (!bpf_map_delete_elem(&processes, &tgid))
		watch_slot(tgid, -1);
}

static __always_inline struct thread *find_thread(struct task_struct *task)
{
	return bpf_task_storage_get(&threads, task, 0, 0);
}

/* Find the state of a thread that reads requests, or make it. NULL: there is no room, which is counted. */
static __always_inline struct thread *reading_thread(struct task_struct *task)
{
	struct thread *t = bpf_task_storage_get(&threads, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	__u64 key;

	if (t && t->key)
		return t;
	key = bpf_ktime_get_ns();
	if (t && !bpf_map_update_elem(&readers, &key, &none_ended, BPF_NOEXIST)) {
		t->key = key;
		return t;
	}
	count_lost(LOST_STATE);
	return NULL;
}

/* The thread ends, or becomes another one. */
static __always_inline void forget_thread(struct task_struct *task)
{
	struct thread *t = find_thread(task);

	if (!t)
		return;
	if (t->key)
		bpf_map_delete_elem(&readers, &t->key);
	bpf_task_storage_delete(&user_stacks, task);
	bpf_task_storage_delete(&threads, task);
}

/* The last thread of a process to end ends it; of several at once each may be taken for that. */
static __always_inline void end_process_with(struct task_struct *task)
{
	if (maybe_watched(task) && !task->signal->live.counter)
		unwatch(task->tgid);
}

/*
 * A thread's last switch: here goes what is still kept of it because the kernel has skipped the program at its exit, as
 * Linux 7 may. What is stored at the task goes with the task.
 */
static __always_inline void leave_for_good(struct task_struct *task)
{
	struct thread *t = find_thread(task);

	if (t && t->key)
		bpf_map_delete_elem(&readers, &t->key);
	end_process_with(task);
}

/* Take off what others have ended. */
static __always_inline void settle(struct thread *t)
{
	__u64 *ended = bpf_map_lookup_elem(&readers, &t->key);
	__u64 n = ended ? *(volatile __u64 *)ended : 0;

	if (!n)
		return;
	__sync_fetch_and_add(ended, -n);
	t->open -= n < t->open ? n : t->open;
}

/* Another than the reader ends a request. */
static __always_inline void ended_for(__u64 reader)
{
	__u64 *ended = bpf_map_lookup_elem(&readers, &reader);

	if (ended)
		__sync_fetch_and_add(ended, 1);
}

#endif
