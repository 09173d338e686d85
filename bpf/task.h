/* SPDX-License-Identifier: GPL-2.0 */
/* task.h: the few fields of tasks and their registers that our programs read, relocated by CO-RE as those of kernel.h. */
#ifndef LATENCYPROBE_TASK_H
#define LATENCYPROBE_TASK_H

#include <linux/types.h>
#include <stdbool.h>

/* include/linux/sched.h: what prev_state of sched_switch says */
#define TASK_INTERRUPTIBLE 0x1
#define TASK_UNINTERRUPTIBLE 0x2
#define TASK_DEAD 0x80
#define TASK_NOLOAD 0x400 /* with TASK_UNINTERRUPTIBLE: idle, waits for nothing */

#define EINTR 4
#define E2BIG 7
#define EEXIST 17
#define ERESTART_RESTARTBLOCK 516

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

#ifdef __TARGET_ARCH_arm64
struct user_pt_regs {
	__u64 regs[31];
};

struct pt_regs {
	struct user_pt_regs user_regs;
};
#define FRAME_POINTER(task_regs) ((task_regs)->user_regs.regs[29])
#define SYSCALL_RESTART 128
#define SYSCALL_EXIT 93
#define SYSCALL_EXIT_GROUP 94
#else
struct pt_regs {
	unsigned long bp;
	unsigned long orig_ax;
};
#define FRAME_POINTER(task_regs) ((task_regs)->bp)
#define SYSCALL_RESTART 219
#define SYSCALL_EXIT 60
#define SYSCALL_EXIT_GROUP 231
#endif

struct thread_info {
	__u32 status;
};

struct kernfs_node___task {
	__u64 id;
};

struct cgroup___task {
	struct kernfs_node___task *kn;
};

struct css_set {
	struct cgroup___task *dfl_cgrp;
};

struct task_struct {
	struct thread_info thread_info;
	int on_cpu;
	int pid;
	int tgid;
	char comm[16];
	struct css_set *cgroups;
};

struct bpf_iter__bpf_map_elem {
	void *key;
	void *value;
};

#pragma clang attribute pop

#endif
