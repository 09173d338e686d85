/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc.h: one message over TCP in random pieces, stamped right before and right after its calls.
 * Sizes, pieces and chunks follow from the RPC's number alone, so a seed gives the same workload again.
 */
#ifndef TRUTH_RPC_H
#define TRUTH_RPC_H

#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <linux/errqueue.h> /* needs struct timespec */
#include <linux/net_tstamp.h>
#include <linux/sockios.h>

#include "log.h"

enum {
	MAX_PIECES = 8,
	MAX_MESSAGE = 1 << 22,
	MAGIC = 0x7472757,
};

/* First bytes of a request. rpc: seed << 32 | number. */
struct header {
	uint64_t rpc;
	uint32_t ordinal;
	uint32_t request_bytes;
	uint32_t response_bytes;
	uint32_t magic;
};

/* How a message is cut: one call for all of it, or random pieces with an occasional gap of up to jitter_us. */
struct cutting {
	bool split;
	uint32_t jitter_us;
};

static int64_t clock_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void pause_us(uint64_t us)
{
	struct timespec t = { .tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000 };

	if (us)
		nanosleep(&t, NULL);
}

/* splitmix64 (Steele, Lea, Flood 2014): a number that looks random for each (x, salt). */
static uint64_t mix(uint64_t x, uint64_t salt)
{
	x += (salt + 1) * 0x9e3779b97f4a7c15ULL;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
	return x ^ x >> 31;
}

/* Send the message; pause gap_us once, between its first two calls. False: the connection failed. */
static bool send_message(int fd, const char *buf, size_t size, uint64_t rpc, struct cutting cut, uint64_t gap_us,
			 struct record *r)
{
	uint64_t random = mix(rpc, r->role);
	size_t pieces = cut.split && random & 1 ? 2 + (random >> 8) % (MAX_PIECES - 1) : 1 + (gap_us > 0);

	for (size_t sent = 0; sent < size;) {
		size_t left = size - sent, piece = left;

		if (pieces > 1 && left > 1) {
			random = mix(random, pieces);
			piece = 1 + random % (left - 1);
			pieces--;
		}
		r->send_last_begin_ns = clock_ns(CLOCK_BOOTTIME);
		ssize_t n = send(fd, buf + sent, piece, MSG_NOSIGNAL);
		r->send_end_ns = clock_ns(CLOCK_BOOTTIME);
		if (n < 0)
			return false;
		if (!r->send_calls++) {
			r->send_start_ns = r->send_last_begin_ns;
			r->first_sent_ns = r->send_end_ns;
		}
		sent += n;
		if (sent == size)
			break;
		if (r->send_calls == 1 && gap_us)
			pause_us(gap_us);
		else if (cut.jitter_us && random % 16 == 0)
			pause_us(random / 16 % cut.jitter_us);
	}
	return true;
}

/*
 * CLOCK_REALTIME - CLOCK_BOOTTIME, not less than it is. Read again if the thread was interrupted between the two, which
 * makes it more; with a slow clock it always is.
 */
static int64_t real_minus_boot_ns(void)
{
	int64_t before, real, after;
	int tries = 16;

	do {
		before = clock_ns(CLOCK_BOOTTIME);
		real = clock_ns(CLOCK_REALTIME);
		after = clock_ns(CLOCK_BOOTTIME);
	} while (after - before > 1000 && --tries);
	return real - before;
}

/* One receive call: the clock before and after it; *arrival_ns: the kernel's receive stamp (real time) in boot time. */
static ssize_t receive_stamped(int fd, char *buf, size_t size, int64_t *begin_ns, int64_t *read_ns, int64_t *arrival_ns)
{
	char control[128];
	struct iovec iov = { buf, size };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)
	};

	*begin_ns = clock_ns(CLOCK_BOOTTIME);
	ssize_t n = recvmsg(fd, &msg, 0);
	*read_ns = clock_ns(CLOCK_BOOTTIME);
	*arrival_ns = 0;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); n > 0 && c; c = CMSG_NXTHDR(&msg, c)) {
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_TIMESTAMPING) {
			struct scm_timestamping stamp;

			memcpy(&stamp, CMSG_DATA(c), sizeof(stamp));
			if (stamp.ts[0].tv_sec)
				*arrival_ns =
					stamp.ts[0].tv_sec * 1000000000LL + stamp.ts[0].tv_nsec - real_minus_boot_ns();
		}
	}
	return n;
}

/* Wait for the message and log what of it is there. SIOCINQ waits for the socket's lock: nobody is still adding to it. */
static bool wait_readable(int fd, struct record *r)
{
	struct pollfd readable = { .fd = fd, .events = POLLIN };
	int bytes;

	if (poll(&readable, 1, -1) < 0 || ioctl(fd, SIOCINQ, &bytes))
		return false;
	r->readable_ns = clock_ns(CLOCK_BOOTTIME);
	r->readable = bytes;
	return true;
}

/*
 * Receive *size bytes, or with *size = 0 a request, whose header says how many. After the message has become readable
 * the reader stops for stop_us. Returns the bytes read; less than *size: the connection ended or failed.
 */
static size_t receive_message(int fd, char *buf, size_t *size, uint64_t random, struct cutting cut, uint64_t stop_us,
			      struct record *r)
{
	size_t got = 0, want = *size ? *size : sizeof(struct header);

	if (!wait_readable(fd, r))
		return 0;
	pause_us(stop_us);
	while (got < want) {
		size_t chunk = MAX_MESSAGE - got;
		int64_t begin_ns, read_ns, arrival_ns;

		if (cut.split) {
			random = mix(random, got);
			chunk = 1 + random % (want / 2 + 64);
			if (chunk > MAX_MESSAGE - got)
				chunk = MAX_MESSAGE - got;
		}
		ssize_t n = receive_stamped(fd, buf + got, chunk, &begin_ns, &read_ns, &arrival_ns);
		if (n <= 0)
			return got;
		r->read_last_begin_ns = begin_ns;
		r->read_last_ns = read_ns;
		r->arrival_last_ns = arrival_ns;
		if (!r->recv_calls++) {
			r->read_first_begin_ns = begin_ns;
			r->read_first_ns = read_ns;
			r->arrival_first_ns = arrival_ns;
		}
		got += n;
		if (!*size && got >= sizeof(struct header)) {
			struct header h;

			memcpy(&h, buf, sizeof(h));
			if (h.magic != MAGIC || h.request_bytes < sizeof(h) || h.request_bytes > MAX_MESSAGE)
				return 0;
			want = *size = h.request_bytes;
		}
	}
	return got;
}

#endif
