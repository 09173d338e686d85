/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link.c: a link between two network namespaces that delays and loses packets, for kernels without netem.
 *
 * usage: link NAMESPACE NAMESPACE DEVICE DELAY_US LOST_PER_MILLE SEED
 * Makes a TUN device in each namespace and carries packets between them, every one DELAY_US after it was sent, except
 * those that it loses. Says "ready" when both devices are there; they go when it ends (at the end of its input).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <linux/if.h>
#include <linux/if_tun.h>

enum { SIDES = 2, QUEUE = 4096, MTU_MAX = 65536 };

struct packet {
	int64_t due_ns;
	ssize_t size;
	char *bytes;
};

/* Packets on their way to a side, in the order in which they are due. */
static struct {
	struct packet packets[QUEUE];
	unsigned first, count;
} queues[SIDES];

static int fail(const char *what)
{
	fprintf(stderr, "link: %s: %s\n", what, strerror(errno));
	exit(1);
}

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int open_device(const char *namespace, const char *name)
{
	struct ifreq request = { .ifr_flags = IFF_TUN | IFF_NO_PI };
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "/run/netns/%s", namespace);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || setns(fd, CLONE_NEWNET))
		fail(path);
	close(fd);
	fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
	snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", name);
	if (fd < 0 || ioctl(fd, TUNSETIFF, &request))
		fail("/dev/net/tun");
	return fd;
}

/* Put what has come from the other side into the queue of `to`, or lose it. */
static void take(int from, int to, int64_t delay_ns, int lost_per_mille)
{
	static char bytes[MTU_MAX];
	ssize_t size;

	while ((size = read(from, bytes, sizeof(bytes))) > 0) {
		struct packet p = { now_ns() + delay_ns, size };

		if (rand() % 1000 < lost_per_mille || queues[to].count == QUEUE)
			continue;
		p.bytes = memcpy(malloc(size), bytes, size);
		queues[to].packets[(queues[to].first + queues[to].count++) % QUEUE] = p;
	}
}

/* Hand over what is due. Returns when the next one is, or `next_ns` if that is earlier. */
static int64_t give(int fd, int to, int64_t next_ns)
{
	while (queues[to].count) {
		struct packet *p = &queues[to].packets[queues[to].first];

		if (p->due_ns > now_ns())
			return p->due_ns < next_ns ? p->due_ns : next_ns;
		if (write(fd, p->bytes, p->size) < 0 && errno != EIO) /* EIO: the device is not up yet */
			fail("write");
		free(p->bytes);
		queues[to].first = (queues[to].first + 1) % QUEUE;
		queues[to].count--;
	}
	return next_ns;
}

int main(int argc, char **argv)
{
	struct pollfd waiting[SIDES + 1];

	if (argc != 7) {
		fputs("usage: link NAMESPACE NAMESPACE DEVICE DELAY_US LOST_PER_MILLE SEED\n", stderr);
		return 2;
	}
	int64_t delay_ns = atoll(argv[4]) * 1000;
	int lost_per_mille = atoi(argv[5]);

	srand(atoi(argv[6]));
	prctl(PR_SET_TIMERSLACK, 1);
	for (int side = 0; side < SIDES; side++)
		waiting[side] = (struct pollfd){ open_device(argv[1 + side], argv[3]), POLLIN, 0 };
	waiting[SIDES] = (struct pollfd){ STDIN_FILENO, POLLIN, 0 };
	puts("ready");
	fflush(stdout);
	for (;;) {
		int64_t far_ns = now_ns() + 1000000000LL, next_ns = far_ns;

		for (int side = 0; side < SIDES; side++)
			next_ns = give(waiting[side].fd, side, next_ns);
		int64_t left_ns = next_ns - now_ns();
		struct timespec timeout = { left_ns > 0 ? left_ns / 1000000000 : 0,
					    left_ns > 0 ? left_ns % 1000000000 : 0 };
		if (ppoll(waiting, SIDES + 1, &timeout, NULL) < 0)
			fail("ppoll");
		if (waiting[SIDES].revents)
			return 0;
		for (int side = 0; side < SIDES; side++)
			take(waiting[side].fd, !side, delay_ns, lost_per_mille);
	}
}
