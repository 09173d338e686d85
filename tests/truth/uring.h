/* SPDX-License-Identifier: Apache-2.0 */
/* uring.h: one io_uring per process, one request in flight: submit it, wait for its completions. No library needed. */
#ifndef TRUTH_URING_H
#define TRUTH_URING_H

#include <errno.h>
#include <linux/io_uring.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

struct uring {
	int fd;
	unsigned *sq_tail, *sq_mask, *sq_array, *cq_head, *cq_tail, *cq_mask;
	struct io_uring_sqe *sqes;
	struct io_uring_cqe *cqes;
};

/* 0, or the errno with which the kernel refuses. */
static int uring_open(struct uring *ring)
{
	struct io_uring_params p = { 0 };
	unsigned char *sq, *cq;

	ring->fd = syscall(SYS_io_uring_setup, 8, &p);
	if (ring->fd < 0)
		return errno;
	sq = mmap(NULL, p.sq_off.array + p.sq_entries * sizeof(unsigned), PROT_READ | PROT_WRITE, MAP_SHARED, ring->fd,
		  IORING_OFF_SQ_RING);
	cq = mmap(NULL, p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe), PROT_READ | PROT_WRITE, MAP_SHARED,
		  ring->fd, IORING_OFF_CQ_RING);
	ring->sqes = mmap(NULL, p.sq_entries * sizeof(struct io_uring_sqe), PROT_READ | PROT_WRITE, MAP_SHARED,
			  ring->fd, IORING_OFF_SQES);
	if (sq == MAP_FAILED || cq == MAP_FAILED || ring->sqes == MAP_FAILED)
		return errno;
	ring->sq_tail = (unsigned *)(sq + p.sq_off.tail);
	ring->sq_mask = (unsigned *)(sq + p.sq_off.ring_mask);
	ring->sq_array = (unsigned *)(sq + p.sq_off.array);
	ring->cq_head = (unsigned *)(cq + p.cq_off.head);
	ring->cq_tail = (unsigned *)(cq + p.cq_off.tail);
	ring->cq_mask = (unsigned *)(cq + p.cq_off.ring_mask);
	ring->cqes = (struct io_uring_cqe *)(cq + p.cq_off.cqes);
	return 0;
}

/* The result of one request, negative errno included; waits for its notification (zero copy) as well. */
static long uring_do(struct uring *ring, int opcode, int fd, void *data, size_t size)
{
	unsigned tail = *ring->sq_tail, slot = tail & *ring->sq_mask, more = 0;
	struct io_uring_sqe *sqe = &ring->sqes[slot];
	long result = 0;

	memset(sqe, 0, sizeof(*sqe));
	sqe->opcode = opcode;
	sqe->fd = fd;
	sqe->addr = (uintptr_t)data;
	sqe->len = size;
	ring->sq_array[slot] = slot;
	__atomic_store_n(ring->sq_tail, tail + 1, __ATOMIC_RELEASE);
	if (syscall(SYS_io_uring_enter, ring->fd, 1, 0, 0, NULL, 0) != 1)
		return -errno;
	do {
		unsigned head = *ring->cq_head;

		while (head == __atomic_load_n(ring->cq_tail, __ATOMIC_ACQUIRE))
			if (syscall(SYS_io_uring_enter, ring->fd, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0) < 0)
				return -errno;
		struct io_uring_cqe *cqe = &ring->cqes[head & *ring->cq_mask];
		if (!(cqe->flags & IORING_CQE_F_NOTIF))
			result = cqe->res;
		more = cqe->flags & IORING_CQE_F_MORE;
		__atomic_store_n(ring->cq_head, head + 1, __ATOMIC_RELEASE);
	} while (more);
	return result;
}

#endif
