// SPDX-License-Identifier: GPL-2.0
/* tracker_syscalls.bpf.c: system calls, from sys_enter to sys_exit, by thread. */
#define TRACKER TRACKER_SYSCALLS
#define TRACKER_KEY __u64     /* tid */
#define TRACKER_ENTRIES 65536 /* threads that make calls at all, 120 bytes each */
#define TRACKER_STAYS
#include "tracker_calls.bpf.h"

char LICENSE[] SEC("license") = "GPL";
