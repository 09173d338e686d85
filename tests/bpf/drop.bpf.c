// SPDX-License-Identifier: GPL-2.0
/* drop.bpf.c: somebody else's program at tc. It drops all. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define TC_ACT_SHOT 2 /* TCX_DROP is the same */

SEC("tc")
int drop(struct __sk_buff *skb)
{
	return TC_ACT_SHOT;
}

char LICENSE[] SEC("license") = "GPL";
