/* SPDX-License-Identifier: GPL-2.0 */
/*
 * task.h: the few fields of tasks and of what is theirs that trackers read, relocated by CO-RE as those of kernel.h. No
 * object includes both.
 */
#ifndef LATENCYPROBE_TASK_H
#define LATENCYPROBE_TASK_H

#include <linux/types.h>
#include <stdbool.h>

/* include/linux/sched.h: what prev_state of sched_switch says */
#define TASK_INTERRUPTIBLE 0x1
#define TASK_UNINTERRUPTIBLE 0x2
#define TASK_DEAD 0x80
#define TASK_NOLOAD 0x400 /* with TASK_UNINTERRUPTIBLE: idle, waits for nothing */

#define AF_INET 2
#define AF_INET6 10
#define IPPROTO_TCP 6

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
	int syscallno;
};
#define SYSCALL_NR(task_regs) ((__u32)(task_regs)->syscallno)
#define FRAME_POINTER(task_regs) ((task_regs)->user_regs.regs[29])
#define SYSCALL_RESTART 128
#define SYSCALL_EXIT 93
#define SYSCALL_EXIT_GROUP 94
#define SYSCALL_ACCEPT 202
#define SYSCALL_ACCEPT4 242
#else
struct pt_regs {
	unsigned long bp;
	unsigned long orig_ax;
};
#define SYSCALL_NR(task_regs) ((task_regs)->orig_ax)
#define FRAME_POINTER(task_regs) ((task_regs)->bp)
#define SYSCALL_RESTART 219
#define SYSCALL_EXIT 60
#define SYSCALL_EXIT_GROUP 231
#define SYSCALL_ACCEPT 43
#define SYSCALL_ACCEPT4 288
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

struct files_struct;

struct task_struct {
	struct thread_info thread_info;
	int on_cpu;
	int pid;
	int tgid;
	char comm[16];
	struct css_set *cgroups;
	struct files_struct *files;
};

struct file___task {
	void *private_data;
};

struct fdtable {
	struct file___task **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

struct sock_common___task {
	unsigned short skc_family;
};

struct sock___task {
	struct sock_common___task __sk_common;
	__u16 sk_protocol;
};

struct socket___task {
	struct sock___task *sk;
};

struct io_kiocb {
	__u8 opcode;
};

struct sk_buff___task {
	unsigned int len;
	int skb_iif;
};

struct bpf_iter__bpf_map_elem {
	void *key;
	void *value;
};

#pragma clang attribute pop

#define TS_COMPAT 2 /* arch/x86/include/asm/thread_info.h */

/* Whether the current call is one of the 32-bit table. */
static inline __attribute__((always_inline)) bool is_compat(const struct task_struct *task)
{
#ifdef __TARGET_ARCH_x86
	return task->thread_info.status & TS_COMPAT;
#else
	return false;
#endif
}

#endif
