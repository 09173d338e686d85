/* SPDX-License-Identifier: GPL-2.0 */
/*
 * wait_request.bpf.h: requests that threads read and answer, docs/design/evidence.md, "Waits". An answer by the thread that
 * read the request, and no other meanwhile, has a split: all that the thread did since was for it.
 */
#ifndef LATENCYPROBE_WAIT_REQUEST_BPF_H
#define LATENCYPROBE_WAIT_REQUEST_BPF_H

#include <bpf/bpf_helpers.h>
#include "events.h"
#include "wait_account.bpf.h"
#include "wait_record.bpf.h"
#include "wait_stack.bpf.h"
#include "wait_thread.bpf.h"

/* Of a socket: the request that was read and is not answered yet. */
struct request {
	__u64 reader; /* thread.key; 0: none is open */
	__u64 read_ns;
	__u64 slow_ns; /* what it must take longer than to be told of */
	__u32 tgid;
	__u32 _pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct request);
} requests SEC(".maps");

/* From here on the thread's time is the request's. */
static __always_inline void begin(struct thread *t, const struct task_struct *task, __u64 cookie, __u64 now_ns)
{
	t->cookie = cookie;
	t->read_ns = now_ns;
	t->off_ns = t->ready_ns = t->throttled_ns = t->preempted_ns = t->other_ns = 0;
	t->switches = task->nvcsw + task->nivcsw;
	t->serving = 1;
	t->lock_ns = 0;
	__builtin_memset(t->blocked, 0, sizeof(t->blocked));
}

/* What a request must take longer than to be told of. */
static __always_inline __u64 slow_ns(const struct target_set *set)
{
	__u64 call = set->evidence & EVIDENCE_SYSCALLS ? set->slow_call_ns : ~0ULL;

	return smaller(call, set->evidence & EVIDENCE_OFFCPU ? set->slow_offcpu_ns : ~0ULL);
}

static __noinline int read_request(struct sock *sk, struct connection *c, const struct target_set *set)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u64 cookie = c->current.sock_cookie, now = now_ns();
	const struct config *cfg = get_config();
	struct thread *t = reading_thread(task);
	struct process *p = t ? watch(task->tgid) : NULL;
	struct request *r = p ? bpf_sk_storage_get(&requests, sk, 0, BPF_SK_STORAGE_GET_F_CREATE) : NULL;

	if (!r || !cfg)
		return 0;
	catch_up(task, t);
	if (r->reader != t->key) {
		if (r->reader) {
			ended_for(r->reader);
		} else {
			__sync_fetch_and_add(&p->open, 1);
			__sync_fetch_and_add(&p->begun, 1);
		}
		if (t->open)
			settle(t);
		t->shared = t->open ? 1 : 0;
		t->open++;
		r->reader = t->key;
		r->tgid = task->tgid;
	}
	r->read_ns = now;
	r->slow_ns = slow_ns(set);
	p->cookie = cookie;
	p->generation = cfg->generation;
	p->target_set = t->target_set = c->target_set;
	p->cgroup_id = t->cgroup_id = sock_cgroup_id(sk);
	begin(t, task, cookie, now);
	prepare_user_stacks(task, t, set);
	return 0;
}

/* sock_recv_length: a receive call of a server half returned, after what exchange.bpf.c does with it. */
static __always_inline int on_read(struct sock *sk, int ret, int flags)
{
	struct connection *c;
	struct target_set *t;
	__u32 set;

	if (ret <= 0 || flags & MSG_PEEK)
		return 0;
	c = bpf_sk_storage_get(&connections, sk, 0, 0);
	if (!c || c->own || c->generation == NEVER_MEASURED || c->current.role != ROLE_SERVER)
		return 0;
	set = c->target_set;
	t = set ? bpf_map_lookup_elem(&target_sets, &set) : NULL;
	return t && t->evidence & EVIDENCE_WAITS ? read_request(sk, c, t) : 0;
}

/* Where the time went: what it was off the CPU is ready or blocked, the rest on it. */
static __noinline int split(struct wait *w, const struct thread *t)
{
	w->start_ns = t->read_ns;
	w->on_cpu_ns = w->flow.boot_ns - t->read_ns - t->off_ns;
	w->ready_ns = t->ready_ns;
	w->throttled_ns = t->throttled_ns;
	w->preempted_ns = t->preempted_ns;
	w->blocked_ns = t->off_ns - t->ready_ns;
	w->other_ns = t->other_ns;
	if (t->lock_ns) {
		w->waker = t->lock_waker;
		w->waker_ns = t->lock_ns;
	}
	for (int i = 0; i < LP_WAIT_CALLS; i++) {
		w->call_ns[i] = t->blocked[i].ns;
		w->call_count[i] = t->blocked[i].count;
		w->call_nr[i] = t->blocked[i].nr;
	}
	return 0;
}

static __noinline int tell(struct sock *sk, struct thread *t, enum served how, __u32 seq)
{
	struct flow_header flow = {};
	struct evidence_counts *n;
	struct wait *w;

	if (!evidence_requested(sk, EVIDENCE_WAITS, ROLE_SERVER, &flow))
		return 0;
	flow.owner_tgid = bpf_get_current_pid_tgid() >> 32;
	flow.owner_tid = bpf_get_current_pid_tgid();
	bpf_get_current_comm(flow.owner_comm, sizeof(flow.owner_comm));
	n = evidence_counts_of(&flow);
	if (n && how < SERVED_COUNT)
		add(&n->served[how], 1);
	if (how != SERVED_SPLIT)
		return 0;
	w = reserve(&flow, WAIT_SERVED, n);
	if (!w)
		return 0;
	split(w, t);
	w->seq = seq;
	submit(w);
	return 0;
}

/* A request ends: answered, or its socket speaks no more. `t`: of the thread that does it, if it may be its reader. */
static __always_inline void end_request(struct request *r, struct thread *t)
{
	struct process *p = bpf_map_lookup_elem(&processes, &r->tgid);

	if (p && p->open) /* 0: the program that had read it has made room for another */
		__sync_fetch_and_add(&p->open, -1);
	if (t && t->key == r->reader) {
		if (t->open > 1) /* else it is this one, and no other has ended it */
			settle(t);
		if (t->open)
			t->open--;
		if (!t->open) {
			t->serving = 0;
			t->shared = 0;
		}
	} else {
		ended_for(r->reader);
	}
	r->reader = 0;
}

static __always_inline enum served how_served(const struct task_struct *task, const struct thread *t,
					      const struct request *r, __u64 elapsed)
{
	if (t->key != r->reader)
		return SERVED_HANDED_OVER;
	if (t->shared)
		return SERVED_AMBIGUOUS;
	return t->switches != task->nvcsw + task->nivcsw || t->off_ns > elapsed ? SERVED_UNSEEN : SERVED_SPLIT;
}

static __noinline int answer(struct sock *sk, struct request *r)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread *t = bpf_task_storage_get(&threads, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	__u64 elapsed = now_ns() - r->read_ns;
	struct tcp_sock *tp;

	if (t && elapsed > r->slow_ns) {
		catch_up(task, t);
		tp = tcp_sock_of(sk);
		if (tp)
			tell(sk, t, how_served(task, t, r, elapsed), tp->write_seq);
	}
	end_request(r, t);
	return 0;
}

/* tcp_sendmsg_locked: a send call begins; the tracepoint fires once per skb. */
static __always_inline int on_send_start(struct sock *sk)
{
	struct request *r = bpf_sk_storage_get(&requests, sk, 0, 0);

	return r && r->reader ? answer(sk, r) : 0;
}

/* inet_sock_set_state: this end will say no more. Perhaps in a softirq: the current task may be anybody. */
static __always_inline int on_state(struct sock *sk, int newstate)
{
	struct request *r;

	if (newstate != TCP_FIN_WAIT1 && newstate != TCP_LAST_ACK && newstate != TCP_CLOSE)
		return 0;
	r = bpf_sk_storage_get(&requests, sk, 0, 0);
	if (r && r->reader)
		end_request(r, NULL);
	return 0;
}

/* Once a second: of a connection that the plan has let go, or whose calls are streams by now, nobody tells an answer. */
static __always_inline int on_flush(struct sock *sk)
{
	const struct connection *c = bpf_sk_storage_get(&connections, sk, 0, 0);
	struct request *r = bpf_sk_storage_get(&requests, sk, 0, 0);

	if (r && r->reader && (!c || !c->target_set || c->told_by >= SEEKING_STREAMS))
		end_request(r, NULL);
	return 0;
}

#endif
