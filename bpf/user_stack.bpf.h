/* SPDX-License-Identifier: GPL-2.0 */
/* user_stack.bpf.h: whether the walk through a user stack by its frame pointers has come to the thread's first frame. */
#ifndef LATENCYPROBE_USER_STACK_BPF_H
#define LATENCYPROBE_USER_STACK_BPF_H

#include <bpf/bpf_helpers.h>
#include "task.h"

/*
 * Whether the chain of frame pointers leads to the thread's first frame, whose own is 0 by the ABI, within `most` frames.
 * Code without frame pointers uses the register for something else: then it leads nowhere, or not upwards; or leaves the 0
 * in it with which the thread began. Of the current task.
 */
static __always_inline bool leads_to_the_end(__u64 frame, __u32 most)
{
	__u64 next;
	__u32 i;

	for (i = 0; i < most; i++) {
		if (!frame)
			return i;
		if (bpf_probe_read_user(&next, sizeof(next), (const void *)frame) || (next && next <= frame))
			return false;
		frame = next;
	}
	return false;
}

#endif
