// SPDX-License-Identifier: GPL-2.0
/*
 * tracker_ttfb.bpf.c: time to the first byte, from the accept() that returned a TCP connection to the first send on it;
 * docs/design/tracker.md, "The other rows". By the socket's address: what is read from a table of descriptors is no
 * pointer that a cookie could be asked of. An entry goes with its socket, so none is ever another's.
 */
#define TRACKER TRACKER_TTFB
#define TRACKER_KEY __u64     /* struct sock */
#define TRACKER_ENTRIES 65536 /* accepted, nothing sent yet: 120 bytes each */
#define TRACKER_KIND(entry) 0
#define TRACKER_KINDS 1
#include "tracker.bpf.h"

#define IORING_OP_ACCEPT 13

/* The TCP socket behind a descriptor of the current task, 0 if it is none. */
static __always_inline __u64 socket_of(const struct task_struct *task, __u64 fd)
{
	struct file **files = BPF_CORE_READ(task, files, fdt, fd), *file = NULL;
	struct socket *socket;
	struct sock *sk;
	__u16 family;

	bpf_probe_read_kernel(&file, sizeof(file), files + fd);
	socket = BPF_CORE_READ(file, private_data);
	sk = BPF_CORE_READ(socket, sk);
	family = BPF_CORE_READ(sk, __sk_common.skc_family);
	if (family != AF_INET && family != AF_INET6)
		return 0;
	return BPF_CORE_READ_BITFIELD_PROBED(sk, sk_protocol) == IPPROTO_TCP ? (__u64)sk : 0;
}

static __always_inline int on_exit(const struct pt_regs *regs, long ret)
{
	const struct tracker_knobs *k = get_knobs();
	struct task_struct *task = bpf_get_current_task_btf();
	__u64 nr = SYSCALL_NR(regs);
	struct entry_key key = {};
	struct entry made = {};

	if ((nr != SYSCALL_ACCEPT && nr != SYSCALL_ACCEPT4) || ret < 0)
		return 0;
	if (!k || !k->tracking_on || !watched(k, task) || is_compat(task))
		return 0;
	key.of = socket_of(task, (__u32)ret);
	if (!key.of)
		return 0;
	made.start_ns = bpf_ktime_get_boot_ns();
	made.tgid = task->tgid;
	made.tid = task->pid;
	return tracker_in(k, &key, true, &made) & 0;
}

static __always_inline int on_send(const struct sock *sk)
{
	const struct tracker_knobs *k = get_knobs();
	struct entry_key key = { .of = (__u64)sk };

	return k ? tracker_out(k, &key, true, 0, bpf_ktime_get_boot_ns(), bpf_get_current_task_btf()) & 0 : 0;
}

static __always_inline int on_destroy(const struct sock *sk)
{
	struct entry_key key = { .of = (__u64)sk };

	tracker_forget(&key);
	return 0;
}

/* An accept by io_uring has no call that returns. */
static __always_inline int on_uring(const struct io_kiocb *request)
{
	const struct tracker_knobs *k = get_knobs();

	if (k && k->tracking_on && request->opcode == IORING_OP_ACCEPT && watched(k, bpf_get_current_task_btf()))
		tell(TOLD_UNCOVERED);
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(accepted__tp_btf, struct pt_regs *regs, long ret)
{
	return on_exit(regs, ret);
}

SEC("tp_btf/tcp_sendmsg_locked")
int BPF_PROG(sent__tp_btf, struct sock *sk)
{
	return on_send(sk);
}

SEC("fentry/tcp_sendmsg_locked")
int BPF_PROG(sent__fentry_sendpage__sendmsg, struct sock *sk)
{
	return on_send(sk);
}

SEC("fentry/do_tcp_sendpages")
int BPF_PROG(sent__fentry_sendpage__sendpages, struct sock *sk)
{
	return on_send(sk);
}

SEC("fentry/tcp_sendmsg_locked")
int BPF_PROG(sent__fentry, struct sock *sk)
{
	return on_send(sk);
}

SEC("tp_btf/tcp_destroy_sock")
int BPF_PROG(destroyed__tp_btf, struct sock *sk)
{
	return on_destroy(sk);
}

SEC("tp_btf/io_uring_submit_req")
int BPF_PROG(uring__tp_btf, struct io_kiocb *request)
{
	return on_uring(request);
}

SEC("tp_btf/io_uring_submit_sqe")
int BPF_PROG(uring__tp_btf_sqe, struct io_kiocb *request)
{
	return on_uring(request);
}

char LICENSE[] SEC("license") = "GPL";
