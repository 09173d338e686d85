// SPDX-License-Identifier: GPL-2.0
/*
 * exchange.bpf.c: stamps on request/response exchanges, docs/design/measurement.md. Thin entry points, one per attach
 * variant of an event, named <event>__<variant>; the loader attaches one variant of each event. Their bodies (on_*):
 * exchange_bytes.bpf.h, exchange_lifecycle.bpf.h.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "kernel.h"
#include "events.h"
#include "exchange_bytes.bpf.h"
#include "exchange_lifecycle.bpf.h"

/*
 * A hook's program ends in that of evidence which wants to know of the same event of server halves, while it is loaded. A
 * program of its own at the same hook would be started for every socket of the node. An array for each hook: a kernel
 * takes only programs that could be attached to the same one.
 */
#ifndef CONNECTIONS_IN_HASH /* where there is no such evidence */
#define BEHIND(hook)                                                                                                   \
	struct {                                                                                                       \
		__uint(type, BPF_MAP_TYPE_PROG_ARRAY);                                                                 \
		__uint(max_entries, 1);                                                                                \
		__type(key, __u32);                                                                                    \
		__type(value, __u32);                                                                                  \
	} behind_##hook SEC(".maps")
#define GO_ON(ctx, hook) bpf_tail_call(ctx, &behind_##hook, 0)

BEHIND(tcp_sendmsg_locked);
BEHIND(do_tcp_sendpages);
BEHIND(sock_recv_length);
BEHIND(inet_recvmsg);
BEHIND(inet6_recvmsg);
#else
#define GO_ON(ctx, hook)
#endif

/* A send call of a TCP socket in a kernel without sock_send_length; UDP comes through the same functions. */
static __always_inline int on_send_return(struct socket *sock, int ret)
{
	struct sock *sk = sock->sk;

	return sk ? on_send_end(sk, ret) : 0;
}

/* A receive call in a kernel without sock_recv_length. */
static __always_inline bool on_read_return(struct socket *sock)
{
	struct sock *sk = sock->sk;

	return sk && on_read(sk);
}

SEC("tp_btf/tcp_sendmsg_locked")
int BPF_PROG(send_start__tp_btf, struct sock *sk, struct msghdr *msg)
{
	if (on_send_start(sk, msg->msg_iter.count))
		GO_ON(ctx, tcp_sendmsg_locked);
	return 0;
}

SEC("fentry/tcp_sendmsg_locked")
int BPF_PROG(send_start__fentry_sendpage__sendmsg, struct sock *sk, struct msghdr *msg)
{
	if (on_send_start(sk, msg->msg_iter.count))
		GO_ON(ctx, tcp_sendmsg_locked);
	return 0;
}

SEC("fentry/do_tcp_sendpages")
int BPF_PROG(send_start__fentry_sendpage__sendpages, struct sock *sk, void *page, int offset, __u64 size)
{
	if (on_send_start(sk, size))
		GO_ON(ctx, do_tcp_sendpages);
	return 0;
}

SEC("fentry/tcp_sendmsg_locked")
int BPF_PROG(send_start__fentry, struct sock *sk, struct msghdr *msg)
{
	if (on_send_start(sk, msg->msg_iter.count))
		GO_ON(ctx, tcp_sendmsg_locked);
	return 0;
}

SEC("tp_btf/sock_send_length")
int BPF_PROG(send_end__tp_btf, struct sock *sk, int ret)
{
	return on_send_end(sk, ret);
}

SEC("fexit/inet_sendmsg")
int BPF_PROG(send_end__fexit_sendpage__inet, struct socket *sock, struct msghdr *msg, unsigned long size, int ret)
{
	return on_send_return(sock, ret);
}

SEC("fexit/inet6_sendmsg")
int BPF_PROG(send_end__fexit_sendpage__inet6, struct socket *sock, struct msghdr *msg, unsigned long size, int ret)
{
	return on_send_return(sock, ret);
}

SEC("fexit/inet_sendpage")
int BPF_PROG(send_end__fexit_sendpage__sendpage, struct socket *sock, void *page, int offset, unsigned long size,
	     int flags, int ret)
{
	return on_send_return(sock, ret);
}

SEC("fexit/inet_sendmsg")
int BPF_PROG(send_end__fexit__inet, struct socket *sock, struct msghdr *msg, unsigned long size, int ret)
{
	return on_send_return(sock, ret);
}

SEC("fexit/inet6_sendmsg")
int BPF_PROG(send_end__fexit__inet6, struct socket *sock, struct msghdr *msg, unsigned long size, int ret)
{
	return on_send_return(sock, ret);
}

SEC("tp_btf/sk_data_ready")
int BPF_PROG(ready__tp_btf, struct sock *sk)
{
	return on_ready(sk);
}

SEC("fentry/sock_def_readable")
int BPF_PROG(ready__fentry, struct sock *sk)
{
	return on_ready(sk);
}

SEC("tp_btf/sock_recv_length")
int BPF_PROG(read__tp_btf, struct sock *sk)
{
	if (on_read(sk))
		GO_ON(ctx, sock_recv_length);
	return 0;
}

SEC("fexit/inet_recvmsg")
int BPF_PROG(read__fexit__inet, struct socket *sock)
{
	if (on_read_return(sock))
		GO_ON(ctx, inet_recvmsg);
	return 0;
}

SEC("fexit/inet6_recvmsg")
int BPF_PROG(read__fexit__inet6, struct socket *sock)
{
	if (on_read_return(sock))
		GO_ON(ctx, inet6_recvmsg);
	return 0;
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(state__tp_btf, struct sock *sk, int oldstate, int newstate)
{
	return on_state(sk, oldstate, newstate);
}

SEC("tp_btf/tcp_destroy_sock")
int BPF_PROG(destroy__tp_btf, struct sock *sk)
{
	return on_destroy(sk);
}

#ifndef CONNECTIONS_IN_HASH /* an iterator over a hash gives no socket */
SEC("iter/bpf_sk_storage_map")
int flush(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	struct sock *sk = ctx->sk;

	return sk ? on_flush(sk) : 0;
}
#endif

char LICENSE[] SEC("license") = "GPL";
