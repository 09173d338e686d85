/* SPDX-License-Identifier: GPL-2.0 */
/*
 * handshake_packet.bpf.h: a packet at tc -> the TCP segment in it, or the one that an ICMP error quotes. Nothing of the
 * packet is changed. Reads by bpf_skb_load_bytes; `pull` reads as tcplat did, for comparison: it pulls the headers into
 * the linear part of every packet. No kernel.h here: these are headers of the wire.
 */
#ifndef LATENCYPROBE_HANDSHAKE_PACKET_BPF_H
#define LATENCYPROBE_HANDSHAKE_PACKET_BPF_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <stdbool.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "address.bpf.h"

#define PULLED 256U /* Ethernet, 2 VLAN tags, IPv6 with common extension headers, TCP with all its options */
#define VLAN_TAGS 2
#define EXTENSION_HEADERS 8
#define FRAGMENT_OFFSET 0x1fff
#define TCP_OPTIONS 40 /* bytes */
#define OPTION_END 0
#define OPTION_NOP 1
#define OPTION_TIMESTAMPS 8
#define ICMP_UNREACHABLE 3
#define ICMP_FRAGMENTATION_NEEDED 4 /* a code: the path has a smaller MTU, and nothing has failed */
#define ICMPV6_UNREACHABLE 1

enum tcp_flag {
	FIN = 0x01,
	SYN = 0x02,
	RST = 0x04,
	ACK = 0x10,
};

/* Numbers in host order. quoted: the packet is an ICMP error about this segment; only ports and seq are known then. */
struct packet {
	__u8 src[16]; /* IPv4 mapped */
	__u8 dst[16];
	__u32 seq;
	__u32 ack;
	__u32 payload; /* bytes */
	__u32 options_at;
	__u32 options; /* bytes */
	__u16 src_port;
	__u16 dst_port;
	__u8 flags; /* enum tcp_flag */
	__u8 quoted;
	__u8 pull;
	__u8 _pad;
};

struct timestamps {
	__u32 value;
	__u32 echo;
};

/* Where the header behind IP's begins, where the IP packet ends, and what is in it. */
struct inside {
	__u32 at;
	__u32 end;
	__u8 protocol;
};

static __always_inline int load(struct __sk_buff *skb, __u32 at, void *to, __u32 size, bool pull)
{
	void *data, *end;

	if (!pull)
		return bpf_skb_load_bytes(skb, at, to, size);
	if (at >= PULLED)
		return -1;
	data = (void *)(long)skb->data;
	end = (void *)(long)skb->data_end;
	if (data + at + size > end)
		return -1;
	__builtin_memcpy(to, data + at, size);
	return 0;
}

static __always_inline bool read_ipv4(struct __sk_buff *skb, __u32 at, struct packet *p, struct inside *in)
{
	struct iphdr ip;

	if (load(skb, at, &ip, sizeof(ip), p->pull) || ip.version != 4 || ip.ihl < 5)
		return false;
	if (ip.frag_off & bpf_htons(FRAGMENT_OFFSET))
		return false;
	map_ipv4(p->src, ip.saddr);
	map_ipv4(p->dst, ip.daddr);
	in->protocol = ip.protocol;
	in->at = at + ip.ihl * 4;
	in->end = at + bpf_ntohs(ip.tot_len);
	return true;
}

static __always_inline bool read_ipv6(struct __sk_buff *skb, __u32 at, struct packet *p, struct inside *in)
{
	struct ipv6hdr ip;

	if (load(skb, at, &ip, sizeof(ip), p->pull) || ip.version != 6)
		return false;
	__builtin_memcpy(p->src, &ip.saddr, sizeof(p->src));
	__builtin_memcpy(p->dst, &ip.daddr, sizeof(p->dst));
	in->protocol = ip.nexthdr;
	in->at = at + sizeof(ip);
	in->end = in->at + bpf_ntohs(ip.payload_len);
	for (int i = 0; i < EXTENSION_HEADERS; i++) {
		__u8 header[4]; /* next, length; of a fragment: next, reserved, offset */

		if (in->protocol != IPPROTO_HOPOPTS && in->protocol != IPPROTO_ROUTING &&
		    in->protocol != IPPROTO_FRAGMENT && in->protocol != IPPROTO_AH && in->protocol != IPPROTO_DSTOPTS)
			break;
		if (load(skb, in->at, header, sizeof(header), p->pull))
			return false;
		if (in->protocol == IPPROTO_FRAGMENT) {
			if (header[2] || header[3] & 0xf8)
				return false;
			in->at += 8;
		} else if (in->protocol == IPPROTO_AH) {
			in->at += (header[1] + 2) * 4;
		} else {
			in->at += (header[1] + 1) * 8;
		}
		in->protocol = header[0];
	}
	return true;
}

/* Never inline: the verifier walks the extension headers once for the packet and once for what an ICMP error quotes. */
static __noinline bool read_ip(struct __sk_buff *skb, __u32 at, __u16 protocol, struct packet *p, struct inside *in)
{
	if (protocol == ETH_P_IP)
		return read_ipv4(skb, at, p, in);
	return protocol == ETH_P_IPV6 && read_ipv6(skb, at, p, in);
}

static __always_inline bool read_segment(struct __sk_buff *skb, struct packet *p, const struct inside *in)
{
	struct tcphdr tcp;

	if (load(skb, in->at, &tcp, sizeof(tcp), p->pull) || tcp.doff < 5)
		return false;
	if (in->at + tcp.doff * 4 > in->end)
		return false;
	p->src_port = bpf_ntohs(tcp.source);
	p->dst_port = bpf_ntohs(tcp.dest);
	p->seq = bpf_ntohl(tcp.seq);
	p->ack = bpf_ntohl(tcp.ack_seq);
	p->flags = ((__u8 *)&tcp)[13];
	p->options_at = in->at + sizeof(tcp);
	p->options = tcp.doff * 4 - sizeof(tcp);
	p->payload = in->end - in->at - tcp.doff * 4;
	return true;
}

static __always_inline bool read_quote(struct __sk_buff *skb, __u16 protocol, struct packet *p, struct inside *in)
{
	__u8 type_code[2];
	struct {
		__be16 source, dest;
		__be32 seq;
	} tcp;

	if (load(skb, in->at, type_code, sizeof(type_code), p->pull))
		return false;
	if (protocol == ETH_P_IP ? type_code[0] != ICMP_UNREACHABLE || type_code[1] == ICMP_FRAGMENTATION_NEEDED
				 : type_code[0] != ICMPV6_UNREACHABLE)
		return false;
	if (!read_ip(skb, in->at + 8, protocol, p, in) || in->protocol != IPPROTO_TCP)
		return false;
	if (load(skb, in->at, &tcp, sizeof(tcp), p->pull))
		return false;
	p->src_port = bpf_ntohs(tcp.source);
	p->dst_port = bpf_ntohs(tcp.dest);
	p->seq = bpf_ntohl(tcp.seq);
	p->quoted = 1;
	return true;
}

/*
 * Read the packet whose layer 3, or VLAN tag, begins at `at`; false: no TCP segment is in it, or a malformed one.
 * `errors`: ICMP errors too. A packet of TCP costs two loads.
 */
static __always_inline bool read_packet(struct __sk_buff *skb, __u32 at, bool errors, struct packet *p)
{
	__u16 protocol = bpf_ntohs(skb->protocol);
	struct inside in = {};

	if (p->pull && (protocol == ETH_P_IP || protocol == ETH_P_IPV6))
		bpf_skb_pull_data(skb, skb->len < PULLED ? skb->len : PULLED);
	for (int i = 0; i < VLAN_TAGS; i++) {
		__be16 tag[2]; /* tag control information, type of what follows */

		if (protocol != ETH_P_8021Q && protocol != ETH_P_8021AD)
			break;
		if (load(skb, at, tag, sizeof(tag), p->pull))
			return false;
		protocol = bpf_ntohs(tag[1]);
		at += sizeof(tag);
	}
	if (!read_ip(skb, at, protocol, p, &in))
		return false;
	if (in.protocol == IPPROTO_TCP)
		return read_segment(skb, p, &in);
	if (errors && in.protocol == (protocol == ETH_P_IP ? IPPROTO_ICMP : IPPROTO_ICMPV6))
		return read_quote(skb, protocol, p, &in);
	return false;
}

/* Find the timestamps option. Never inline: few packets get here. */
static __noinline bool read_timestamps(struct __sk_buff *skb, const struct packet *p, struct timestamps *ts)
{
	__u32 at = 0;
	__be32 values[2];

	for (int i = 0; i < TCP_OPTIONS; i++) {
		__u8 option[2]; /* kind, length */

		at &= 63; /* for the verifier: it is true anyway */
		if (at + sizeof(option) > p->options || load(skb, p->options_at + at, option, sizeof(option), p->pull))
			return false;
		if (option[0] == OPTION_NOP) {
			at++;
			continue;
		}
		if (option[0] == OPTION_END || option[1] < sizeof(option))
			return false;
		if (option[0] == OPTION_TIMESTAMPS) {
			if (at + sizeof(option) + sizeof(values) > p->options ||
			    load(skb, p->options_at + at + sizeof(option), values, sizeof(values), p->pull))
				return false;
			ts->value = bpf_ntohl(values[0]);
			ts->echo = bpf_ntohl(values[1]);
			return true;
		}
		at += option[1];
	}
	return false;
}

#endif
