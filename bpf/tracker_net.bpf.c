// SPDX-License-Identifier: GPL-2.0
/*
 * tracker_net.bpf.c: packets between the interface and the process that reads them, from netif_receive_skb to the first
 * copy to user space; docs/design/tracker.md, "The other rows". It runs for each packet of the host.
 */
#define TRACKER TRACKER_NET
#define TRACKER_KEY __u64     /* struct sk_buff */
#define TRACKER_ENTRIES 65536 /* packets on their way, 120 bytes each */
#define TRACKER_KIND(entry) 0
#define TRACKER_KINDS 1
#include "tracker.bpf.h"

static __always_inline int on_received(const struct sk_buff *skb)
{
	const struct tracker_knobs *k = get_knobs();
	struct entry_key key = { .of = (__u64)skb };
	struct entry made = {};

	if (!k || !k->tracking_on)
		return 0;
	made.start_ns = bpf_ktime_get_boot_ns();
	made.payload[0] = skb->len;
	return tracker_in(k, &key, true, &made) & 0;
}

/*
 * Some packets end unseen, merged into another or acknowledging only, and their memory becomes another packet's; one that
 * came from no interface is not the one that we know.
 */
static __always_inline int on_copied(const struct sk_buff *skb)
{
	const struct tracker_knobs *k = get_knobs();
	const struct task_struct *task = bpf_get_current_task_btf();
	struct entry_key key = { .of = (__u64)skb };

	if (!k)
		return 0;
	if (!skb->skb_iif || !watched(k, task)) {
		tracker_forget(&key);
		return 0;
	}
	return tracker_out(k, &key, true, 0, bpf_ktime_get_boot_ns(), task) & 0;
}

/* Dropped, or merged into another: no latency. */
static __always_inline int on_gone(const struct sk_buff *skb)
{
	struct entry_key key = { .of = (__u64)skb };

	tracker_forget(&key);
	return 0;
}

SEC("tp_btf/netif_receive_skb")
int BPF_PROG(received__tp_btf, struct sk_buff *skb)
{
	return on_received(skb);
}

SEC("tp_btf/skb_copy_datagram_iovec")
int BPF_PROG(copied__tp_btf, struct sk_buff *skb)
{
	return on_copied(skb);
}

SEC("tp_btf/consume_skb")
int BPF_PROG(consumed__tp_btf, struct sk_buff *skb)
{
	return on_gone(skb);
}

SEC("tp_btf/kfree_skb")
int BPF_PROG(dropped__tp_btf, struct sk_buff *skb)
{
	return on_gone(skb);
}

char LICENSE[] SEC("license") = "GPL";
