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

#define EAGAIN 11
#define ENOMEM 12
#define EACCES 13
#define EBUSY 16
#define EPIPE 32
#define ENONET 64
#define ENOPROTOOPT 92
#define ENETUNREACH 101
#define ECONNRESET 104
#define ETIMEDOUT 110
#define ECONNREFUSED 111
#define EHOSTDOWN 112
#define EHOSTUNREACH 113

/*
 * The end of a function of its own that returns nothing: the verifier refuses one in whose r0 an address of the stack is
 * left, as it would be returned.
 */
#define RETURN_NOTHING asm volatile("r0 = 0" ::: "r0")

/* Once, in this order, and not as the compiler would have it: others read and write beside us. */
#define READ_ONCE(x) (*(volatile typeof(x) *)&(x))
#define WRITE_ONCE(x, value) (*(volatile typeof(x) *)&(x) = (value))

#define RCV_SHUTDOWN 1

enum tcp_state {
	TCP_ESTABLISHED = 1,
	TCP_SYN_SENT = 2,
	TCP_SYN_RECV = 3,
	TCP_FIN_WAIT1 = 4,
	TCP_FIN_WAIT2 = 5,
	TCP_CLOSE = 7,
	TCP_CLOSE_WAIT = 8,
	TCP_LAST_ACK = 9,
	TCP_LISTEN = 10,
	TCP_CLOSING = 11,
	TCP_NEW_SYN_RECV = 12,
};

enum tcp_ca_state {
	TCP_CA_Recovery = 3,
};

#define TCPHDR_SYN 0x02
#define TCPHDR_ACK 0x10

#define MSG_PEEK 2

#define SK_USER_DATA_PSOCK 4 /* include/net/sock.h, from 6.0: the socket is in a sockmap */

enum sock_flag_bits {
	SOCK_DONE_BIT = 1 << 1, /* include/net/sock.h: SOCK_DONE, set by tcp_fin() */
};

/* include/uapi/linux/uio.h */
struct iovec {
	void *iov_base;
	__u64 iov_len;
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

struct cgroup;

struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
};

struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
};

struct sock_cgroup_data {
	struct cgroup *cgroup;
};

struct inode {
	unsigned long i_ino;
};

struct file {
	struct inode *f_inode;
	void *private_data;
};

struct sock;

struct socket {
	struct file *file;
	struct sock *sk;
};

struct iov_iter {
	__u8 iter_type;
	unsigned long count;
	unsigned long iov_offset;
	const struct iovec *__iov;
	void *ubuf;
	unsigned long nr_segs;
};

struct msghdr {
	struct iov_iter msg_iter;
};

struct sk_buff {
	struct sock *sk;
	char cb[48];
	unsigned int len;
	int skb_iif;
};

struct sk_buff_head {
	struct sk_buff *next;
	struct sk_buff *prev;
	__u32 qlen;
};

struct sock_extended_err {
	__u32 ee_errno;
};

struct sock_exterr_skb {
	struct sock_extended_err ee;
};

struct sock {
	struct sock_common __sk_common;
	socket_lock_t sk_lock;
	__u8 sk_shutdown;
	__u16 sk_protocol;
	int sk_err;
	int sk_err_soft;
	struct sk_buff_head sk_error_queue;
	int sk_rcvlowat;
	void *sk_user_data;
	struct socket *sk_socket;
	struct sock_cgroup_data sk_cgrp_data;
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
	__u32 icsk_rto;
	const struct tcp_ulp_ops *icsk_ulp_ops;
	__u8 icsk_ca_state : 5;
	__u8 icsk_retransmits;
	__u8 icsk_pending;
	__u8 icsk_backoff;
};

struct tcp_rack {
	__u64 mstamp;
	__u32 end_seq;
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
	__u32 data_segs_in;
	__u32 total_retrans;
	__u32 data_segs_out;
	__u64 bytes_sent;
	__u64 bytes_retrans;
	__u32 dsack_dups;
	__u32 undo_marker;
	__u32 snd_cwnd;
	__u32 snd_ssthresh;
	__u32 snd_wnd;
	__u64 tcp_clock_cache;
	__u64 tcp_mstamp;
	__u32 mss_cache;
	__u32 packets_out;
	__u32 sacked_out;
	__u32 lost_out;
	__u32 retrans_out;
	__u32 snd_sml;
	__u32 pushed_seq;
	__u64 tcp_wstamp_ns;
	struct tcp_rack rack;
	__u8 nonagle : 4;
	__u32 rcv_ooopack;
	bool is_mptcp;
	bool syn_smc;
	struct request_sock *fastopen_rsk;
};

/* The second argument of tcp_retransmit_synack; its addresses are where a sock has its own. */
struct request_sock {
	struct sock_common __req_common;
	__u8 num_retrans;
};

struct tcp_request_sock {
	__u32 snt_isn;
};

struct tcp_skb_cb {
	__u32 seq;
	__u32 end_seq;
	__u16 tcp_gso_segs;
	__u16 tcp_flags;
	__u8 sacked;
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
