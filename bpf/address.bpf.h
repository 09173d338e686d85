/* SPDX-License-Identifier: GPL-2.0 */
/* address.bpf.h: addresses as events.h has them, 16 bytes each: IPv6, or IPv4 mapped into it. */
#ifndef LATENCYPROBE_ADDRESS_BPF_H
#define LATENCYPROBE_ADDRESS_BPF_H

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

static __always_inline void map_ipv4(__u8 *addr, __be32 ipv4)
{
	__u32 *words = (__u32 *)addr;

	words[0] = 0;
	words[1] = 0;
	words[2] = bpf_htonl(0xffff);
	words[3] = ipv4;
}

static __always_inline bool is_mapped(const __u8 *addr)
{
	const __u32 *words = (const __u32 *)addr;

	return !words[0] && !words[1] && words[2] == bpf_htonl(0xffff);
}

static __always_inline bool same_addr(const __u8 *one, const __u8 *other)
{
	const __u64 *a = (const __u64 *)one, *b = (const __u64 *)other;

	return a[0] == b[0] && a[1] == b[1];
}

#endif
