/* SPDX-License-Identifier: GPL-2.0 */
/* task.h: the few fields of tasks, of their calls and of the scheduler that our programs read, as those in kernel.h. */
#ifndef LATENCYPROBE_TASK_H
#define LATENCYPROBE_TASK_H

#include <linux/types.h>
#include <stdbool.h>
#include "kernel.h"

/* include/linux/sched.h: what prev_state of sched_switch says */
#define TASK_INTERRUPTIBLE 0x1
#define TASK_UNINTERRUPTIBLE 0x2
#define TASK_STOPPED_OR_TRACED 0xc
#define TASK_DEAD 0x80
#define TASK_NOLOAD 0x400 /* with TASK_UNINTERRUPTIBLE: idle, waits for nothing */

#define PF_KTHREAD 0x00200000 /* include/linux/sched.h */

#define JOBCTL_TRAP_FREEZE (1UL << 23) /* include/linux/sched/jobctl.h */

#define EINTR 4
#define E2BIG 7
#define EEXIST 17
#define ERESTART_RESTARTBLOCK 516

#define SYSCALL_FUTEX_WAITV 449 /* on all architectures */
#define SYSCALL_FUTEX_WAIT 455

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
#define SYSCALL_FUTEX 98
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
#define SYSCALL_FUTEX 202
#define SYSCALL_ACCEPT 43
#define SYSCALL_ACCEPT4 288
#endif

struct thread_info {
	__u32 status;	     /* x86 */
	__u64 preempt_count; /* arm64: with another field in its upper half */
};

struct css_set {
	struct cgroup *dfl_cgrp;
};

struct files_struct;

struct sched_info {
	unsigned long long run_delay;
	unsigned long long last_arrival;
	unsigned long long last_queued;
};

struct cfs_bandwidth {
	__u64 throttled_time;
};

struct task_group {
	struct task_group *parent;
	struct cfs_bandwidth cfs_bandwidth;
};

struct rq {
	__u64 clock;
};

struct cfs_rq {
	struct rq *rq;
};

struct sched_entity {
	struct cfs_rq *cfs_rq; /* with CONFIG_FAIR_GROUP_SCHED, of a task of any class */
};

typedef struct {
	int counter;
} atomic_t;

struct signal_struct {
	atomic_t live;
};

struct task_struct {
	struct thread_info thread_info;
	unsigned int __state;
	unsigned int on_cpu; /* one byte since 7.2, which CO-RE reads into unsigned only */
	void *stack;
	unsigned int flags;
	unsigned long jobctl;
	int pid;
	int tgid;
	unsigned long nvcsw;
	unsigned long nivcsw;
	struct sched_entity se;
	struct sched_info sched_info;
	struct task_group *sched_task_group;
	struct signal_struct *signal;
	struct css_set *cgroups;
	struct files_struct *files;
	char comm[16];
};

struct fdtable {
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

struct io_kiocb {
	__u8 opcode;
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

/* The cgroup in the version 2 hierarchy. */
static inline __attribute__((always_inline)) __u64 cgroup_of(const struct task_struct *task)
{
	return task->cgroups->dfl_cgrp->kn->id;
}

#endif
