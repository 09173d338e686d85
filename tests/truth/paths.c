/* SPDX-License-Identifier: Apache-2.0 */
/*
 * paths.c: turns on one connection by a chosen way into and out of the kernel, stamped around each message.
 *
 *   paths SEND RECV HOST PORT TURNS REQUEST_BYTES RESPONSE_BYTES [fastopen]
 *
 * Prints one line per side and turn: role (1 client, 2 server), turn, begin and end of the message that it sent, begin
 * and end of the one that it received (ns of CLOCK_BOOTTIME). "fastopen": the first request goes with the SYN, by
 * sendto(MSG_FASTOPEN). Exit 77: the kernel refuses io_uring. Build: cc -O2 paths.c
 */
#define _GNU_SOURCE
#include "uring.h"

#include <linux/errqueue.h>
#include <linux/tcp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>

enum { REFUSED = 77, PIECE = 7, MESSAGES = 4 };

typedef long (*transfer)(int fd, char *data, size_t size);
static struct uring ring;

static void fail(const char *what)
{
	fprintf(stderr, "paths: %s: %s\n", what, strerror(errno));
	exit(1);
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_BOOTTIME, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static void wait_for(int fd, short events)
{
	struct pollfd polled = { fd, events, 0 };

	if (poll(&polled, 1, 10000) != 1)
		fail("poll");
}

/* The data in up to MESSAGES pieces, for the calls that take vectors. */
static int pieces(struct iovec *vectors, char *data, size_t size)
{
	int n = 0;

	for (size_t done = 0; done < size; n++) {
		size_t part = n == MESSAGES - 1 ? size - done : (size + MESSAGES - 1) / MESSAGES;

		if (part > size - done)
			part = size - done;
		vectors[n] = (struct iovec){ data + done, part };
		done += part;
	}
	return n;
}

static long by_write(int fd, char *data, size_t size)
{
	return write(fd, data, size);
}

static long by_send(int fd, char *data, size_t size)
{
	return send(fd, data, size, 0);
}

static long by_writev(int fd, char *data, size_t size)
{
	struct iovec vectors[MESSAGES];

	return writev(fd, vectors, pieces(vectors, data, size));
}

static long by_sendmsg(int fd, char *data, size_t size)
{
	struct iovec vectors[MESSAGES];
	struct msghdr message = { .msg_iov = vectors };

	message.msg_iovlen = pieces(vectors, data, size);
	return sendmsg(fd, &message, 0);
}

static long by_mmsg(int fd, char *data, size_t size, bool sends)
{
	struct iovec vectors[MESSAGES];
	struct mmsghdr messages[MESSAGES];
	int n = pieces(vectors, data, size);
	long sum = 0;

	memset(messages, 0, sizeof(messages));
	for (int i = 0; i < n; i++) {
		messages[i].msg_hdr.msg_iov = &vectors[i];
		messages[i].msg_hdr.msg_iovlen = 1;
	}
	/* one message at a time may come short: only full ones may follow one another */
	n = sends ? sendmmsg(fd, messages, n, 0) : recvmmsg(fd, messages, n, MSG_WAITALL, NULL);
	for (int i = 0; i < n; i++)
		sum += messages[i].msg_len;
	return n < 0 ? n : sum;
}

static long by_sendmmsg(int fd, char *data, size_t size)
{
	return by_mmsg(fd, data, size, true);
}

/* MSG_ZEROCOPY; the completion is read from the error queue, which must not count as a receive call. */
static long by_zerocopy(int fd, char *data, size_t size)
{
	char control[128];
	struct msghdr message = { .msg_control = control, .msg_controllen = sizeof(control) };
	long sent = send(fd, data, size, MSG_ZEROCOPY);

	wait_for(fd, 0); /* POLLERR */
	if (recvmsg(fd, &message, MSG_ERRQUEUE) < 0)
		fail("MSG_ERRQUEUE");
	return sent;
}

static long by_uring_send(int fd, char *data, size_t size)
{
	return uring_do(&ring, IORING_OP_SEND, fd, data, size);
}

static long by_uring_zerocopy(int fd, char *data, size_t size)
{
	return uring_do(&ring, IORING_OP_SEND_ZC, fd, data, size);
}

static long by_read(int fd, char *data, size_t size)
{
	return read(fd, data, size);
}

static long by_recv(int fd, char *data, size_t size)
{
	return recv(fd, data, size, 0);
}

static long by_readv(int fd, char *data, size_t size)
{
	struct iovec vectors[MESSAGES];

	return readv(fd, vectors, pieces(vectors, data, size));
}

static long by_recvmsg(int fd, char *data, size_t size)
{
	struct iovec vectors[MESSAGES];
	struct msghdr message = { .msg_iov = vectors };

	message.msg_iovlen = pieces(vectors, data, size);
	return recvmsg(fd, &message, 0);
}

static long by_recvmmsg(int fd, char *data, size_t size)
{
	return by_mmsg(fd, data, size, false);
}

static long by_waitall(int fd, char *data, size_t size)
{
	return recv(fd, data, size, MSG_WAITALL);
}

static long by_peek(int fd, char *data, size_t size)
{
	if (recv(fd, data, size, MSG_PEEK) < 0)
		return -1;
	return recv(fd, data, size, 0);
}

static long by_pieces(int fd, char *data, size_t size)
{
	return recv(fd, data, size < PIECE ? size : PIECE, 0);
}

static long by_trunc(int fd, char *data, size_t size)
{
	return recv(fd, data, size, MSG_TRUNC); /* the bytes are consumed, not copied */
}

static long by_uring_recv(int fd, char *data, size_t size)
{
	return uring_do(&ring, IORING_OP_RECV, fd, data, size);
}

/* TCP_ZEROCOPY_RECEIVE of less than a page: copied by the kernel outside every receive call. */
static long by_getsockopt(int fd, char *data, size_t size)
{
	struct tcp_zerocopy_receive got = { .copybuf_address = (uintptr_t)data, .copybuf_len = size };
	socklen_t length = sizeof(got);

	wait_for(fd, POLLIN);
	if (getsockopt(fd, IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE, &got, &length))
		return -1;
	return got.copybuf_len;
}

static const struct {
	const char *name;
	transfer run;
} sends[] = { { "write", by_write },	     { "send", by_send },
	      { "writev", by_writev },	     { "sendmsg", by_sendmsg },
	      { "sendmmsg", by_sendmmsg },   { "zerocopy", by_zerocopy },
	      { "io_uring", by_uring_send }, { "io_uring_zerocopy", by_uring_zerocopy } },
  receives[] = { { "read", by_read },		{ "recv", by_recv },	      { "readv", by_readv },
		 { "recvmsg", by_recvmsg },	{ "recvmmsg", by_recvmmsg },  { "waitall", by_waitall },
		 { "peek", by_peek },		{ "pieces", by_pieces },      { "trunc", by_trunc },
		 { "io_uring", by_uring_recv }, { "zerocopy", by_getsockopt } };

static transfer find(const char *name, bool sending)
{
	for (unsigned i = 0; sending ? i < sizeof(sends) / sizeof(*sends) : i < sizeof(receives) / sizeof(*receives);
	     i++)
		if (!strcmp(name, sending ? sends[i].name : receives[i].name))
			return sending ? sends[i].run : receives[i].run;
	fprintf(stderr, "paths: %s: no such way\n", name);
	exit(2);
}

static void move(transfer run, int fd, size_t size, uint64_t *begin_ns, uint64_t *end_ns)
{
	char *data = calloc(1, size);

	*begin_ns = now_ns();
	for (size_t done = 0; done < size;) {
		long n = run(fd, data + done, size - done);

		if (n <= 0)
			fail("transfer");
		done += n;
	}
	*end_ns = now_ns();
	free(data);
}

int main(int argc, char **argv)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *address;
	bool fast = argc == 9 && !strcmp(argv[8], "fastopen");
	int on = 1, listener, fd, status, first = 0;
	uint64_t t[4];

	if (argc < 8 || getaddrinfo(argv[3], argv[4], &hints, &address)) {
		fprintf(stderr, "usage: paths SEND RECV HOST PORT TURNS REQUEST_BYTES RESPONSE_BYTES [fastopen]\n");
		return 2;
	}
	transfer sending = find(argv[1], true), receiving = find(argv[2], false);
	int turns = atoi(argv[5]);
	size_t request = strtoull(argv[6], NULL, 10), response = strtoull(argv[7], NULL, 10);

	listener = socket(address->ai_family, SOCK_STREAM, 0);
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (fast && setsockopt(listener, IPPROTO_TCP, TCP_FASTOPEN, &on, sizeof(on)))
		fail("TCP_FASTOPEN");
	if (bind(listener, address->ai_addr, address->ai_addrlen) || listen(listener, 1))
		fail("listen");
	pid_t server = fork();
	if (!server)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (strstr(argv[1], "io_uring") || strstr(argv[2], "io_uring")) {
		errno = uring_open(&ring);
		if (errno) {
			perror("paths: io_uring");
			return REFUSED;
		}
	}
	if (!server) {
		fd = accept(listener, NULL, NULL);
	} else {
		fd = socket(address->ai_family, SOCK_STREAM, 0);
		if (fast) {
			char *data = calloc(1, request);

			first = sendto(fd, data, request, MSG_FASTOPEN, address->ai_addr, address->ai_addrlen) ==
				(long)request;
			if (!first)
				fail("MSG_FASTOPEN");
		} else if (connect(fd, address->ai_addr, address->ai_addrlen)) {
			fail("connect");
		}
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof(on));
	for (int i = 0; i < turns; i++) {
		if (server) {
			if (i >= first)
				move(sending, fd, request, &t[0], &t[1]);
			else
				t[0] = t[1] = 0;
			move(receiving, fd, response, &t[2], &t[3]);
		} else {
			move(receiving, fd, request, &t[2], &t[3]);
			move(sending, fd, response, &t[0], &t[1]);
		}
		printf("%d %d %lu %lu %lu %lu\n", server ? 1 : 2, i, t[0], t[1], t[2], t[3]);
	}
	fflush(stdout);
	close(fd);
	if (!server)
		_exit(0);
	waitpid(server, &status, 0);
	return status ? 1 : 0;
}
