// SPDX-License-Identifier: GPL-2.0
/*
 * wait.bpf.c: why a request waited inside its host, docs/design/evidence.md, "Waits": from the switches between tasks, and
 * from who reads and answers requests. Entry points are named as in exchange.bpf.c.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "kernel.h"
#include "events.h"
#include "wait_account.bpf.h"
#include "wait_record.bpf.h"
#include "wait_request.bpf.h"
#include "wait_switch.bpf.h"
#include "wait_thread.bpf.h"
#include "wait_waker.bpf.h"

SEC("tp_btf/sched_switch")
int BPF_PROG(switch__tp_btf, bool preempted, struct task_struct *prev, struct task_struct *next, __u32 state)
{
	return on_switch(ctx, preempted, prev, next, state);
}

/* Before 5.18 the tracepoint passes no state; a wake-up may have changed the field since. */
SEC("tp_btf/sched_switch")
int BPF_PROG(switch__read_state, bool preempted, struct task_struct *prev, struct task_struct *next)
{
	return on_switch(ctx, preempted, prev, next, prev->__state);
}

SEC("tp_btf/sched_waking")
int BPF_PROG(waking__tp_btf, struct task_struct *task)
{
	return on_waking(ctx, task);
}

/* An agent's programs of `read` and `send_start` are not attached: those of exchange.bpf.c end in them. */
SEC("tp_btf/sock_recv_length")
int BPF_PROG(read__tp_btf, struct sock *sk, int ret, int flags)
{
	return on_read(sk, ret, flags);
}

SEC("fexit/inet_recvmsg")
int BPF_PROG(read__fexit__inet, struct socket *sock, struct msghdr *msg, __u64 size, int flags, int ret)
{
	return sock->sk ? on_read(sock->sk, ret, flags) : 0;
}

SEC("fexit/inet6_recvmsg")
int BPF_PROG(read__fexit__inet6, struct socket *sock, struct msghdr *msg, __u64 size, int flags, int ret)
{
	return sock->sk ? on_read(sock->sk, ret, flags) : 0;
}

SEC("tp_btf/tcp_sendmsg_locked")
int BPF_PROG(send_start__tp_btf, struct sock *sk)
{
	return on_send_start(sk);
}

SEC("fentry/tcp_sendmsg_locked")
int BPF_PROG(send_start__fentry_sendpage__sendmsg, struct sock *sk)
{
	return on_send_start(sk);
}

SEC("fentry/do_tcp_sendpages")
int BPF_PROG(send_start__fentry_sendpage__sendpages, struct sock *sk)
{
	return on_send_start(sk);
}

SEC("fentry/tcp_sendmsg_locked")
int BPF_PROG(send_start__fentry, struct sock *sk)
{
	return on_send_start(sk);
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(state__tp_btf, struct sock *sk, int oldstate, int newstate)
{
	return on_state(sk, newstate);
}

/* Another may have ended its process already, so what is kept of a thread goes whether that is watched or not. */
SEC("tp_btf/sched_process_exit")
int BPF_PROG(exit__tp_btf, struct task_struct *task)
{
	forget_thread(task);
	end_process_with(task);
	return 0;
}

/* Another program, of which nobody knows whether it serves; the process's other threads have ended. */
SEC("tp_btf/sched_process_exec")
int BPF_PROG(exec__tp_btf, struct task_struct *task)
{
	if (!maybe_watched(task))
		return 0;
	forget_thread(task);
	unwatch(task->tgid);
	return 0;
}

SEC("iter/bpf_sk_storage_map")
int flush(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	struct sock *sk = ctx->sk;

	return sk ? on_flush(sk) : 0;
}

char LICENSE[] SEC("license") = "GPL";
