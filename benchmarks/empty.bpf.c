// SPDX-License-Identifier: GPL-2.0
/* empty.bpf.c: the hooks of exchange.bpf.c with nothing behind them. What they cost is the floor of any such tool. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define EMPTY(tracepoint)                                                                                              \
	SEC("tp_btf/" #tracepoint) int empty_##tracepoint(void *ctx)                                                   \
	{                                                                                                              \
		(void)ctx;                                                                                             \
		return 0;                                                                                              \
	}

EMPTY(tcp_sendmsg_locked)
EMPTY(sock_send_length)
EMPTY(sk_data_ready)
EMPTY(sock_recv_length)
EMPTY(inet_sock_set_state)
EMPTY(tcp_destroy_sock)

char LICENSE[] SEC("license") = "GPL";
