/* SPDX-License-Identifier: GPL-2.0 */
/*
 * kernel.h: the few kernel struct fields that our programs read, relocated by CO-RE. Not a copy of a kernel
 * header: only names and rough types matter, offsets come from the running kernel's BTF.
 */
#ifndef LATENCYPROBE_KERNEL_H
#define LATENCYPROBE_KERNEL_H

#include <linux/types.h>
#include <stdbool.h>

#define AF_INET 2
#define AF_INET6 10
#define IPPROTO_TCP 6

#define EPIPE 32
#define ENETUNREACH 101
#define ECONNRESET 104
#define ETIMEDOUT 110
#define EHOSTUNREACH 113

#define RCV_SHUTDOWN 1
#define SEND_SHUTDOWN 2

enum tcp_state {
	TCP_ESTABLISHED = 1,
	TCP_SYN_SENT = 2,
	TCP_SYN_RECV = 3,
	TCP_FIN_WAIT1 = 4,
	TCP_FIN_WAIT2 = 5,
	TCP_CLOSE = 7,
	TCP_CLOSE_WAIT = 8,
	TCP_LAST_ACK = 9,
	TCP_CLOSING = 11,
};

#define SK_USER_DATA_PSOCK 4 /* include/net/sock.h, from 6.0: the socket is in a sockmap */

enum sock_flag_bits {
	SOCK_DONE_BIT = 1 << 1, /* include/net/sock.h: SOCK_DONE, set by tcp_fin() */
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct ns_common {
	unsigned int inum;
};

struct net {
	struct ns_common ns;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct in6_addr {
	union {
		__u8 u6_addr8[16];
		__be32 u6_addr32[4];
	} in6_u;
};

struct sock_common {
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	__u16 skc_num;
	unsigned short skc_family;
	volatile unsigned char skc_state;
	possible_net_t skc_net;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
	unsigned long skc_flags;
};

typedef struct {
	int owned;
} socket_lock_t;

struct kernfs_node {
	__u64 id;
};

struct cgroup {
	struct kernfs_node *kn;
};

struct sock_cgroup_data {
	struct cgroup *cgroup;
};

struct sock {
	struct sock_common __sk_common;
	socket_lock_t sk_lock;
	__u8 sk_shutdown;
	__u16 sk_protocol;
	int sk_err;
	int sk_rcvlowat;
	void *sk_user_data;
	struct sock_cgroup_data sk_cgrp_data;
};

struct socket {
	struct sock *sk;
};

struct minmax_sample {
	__u32 t;
	__u32 v;
};

struct minmax {
	struct minmax_sample s[3];
};

struct inet_sock {
	struct sock sk;
	__be16 inet_sport;
};

struct tcp_ulp_ops {
	char name[16];
};

struct inet_connection_sock {
	struct inet_sock icsk_inet;
	const struct tcp_ulp_ops *icsk_ulp_ops;
};

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	__u32 rcv_nxt;
	__u32 copied_seq;
	__u32 snd_nxt;
	__u32 snd_una;
	__u32 write_seq;
	__u32 rcv_wnd;
	__u64 bytes_received;
	__u64 bytes_acked;
	__u32 srtt_us;
	struct minmax rtt_min;
	__u32 total_retrans;
	__u32 mss_cache;
	__u32 rcv_ooopack;
	bool is_mptcp;
	bool syn_smc;
};

struct sk_buff {
	char cb[48];
	unsigned int len;
};

struct tcp_skb_cb {
	__u32 ack_seq;
};

struct seq_file;
struct bpf_map;

struct bpf_iter_meta {
	struct seq_file *seq;
	__u64 session_id;
	__u64 seq_num;
};

struct bpf_iter__bpf_sk_storage_map {
	struct bpf_iter_meta *meta;
	struct bpf_map *map;
	struct sock *sk;
	void *value;
};

#pragma clang attribute pop

#endif
