/* SPDX-License-Identifier: Apache-2.0 */
/*
 * echo.c: a server of 64-byte messages for openloop.c, one thread.
 *
 *   echo PORT DELAY_MS   answers at once, or DELAY_MS later where the message begins with `s`
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "common.h"

enum { SIZE = 64, EVENTS = 256, WAITING = 1 << 16 };

static struct {
	int fd;
	int64_t due_ns;
} waiting[WAITING]; /* a circle: equal delays end in the order in which they began */
static unsigned int oldest, newest;

static void answer(int fd, char first)
{
	char buf[SIZE] = { first };

	send(fd, buf, SIZE, MSG_NOSIGNAL); /* who has left gets none */
}

int main(int argc, char **argv)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct epoll_event events[EVENTS], event = { .events = EPOLLIN };
	struct rlimit files;
	int on = 1, epoll = epoll_create1(0), listener = socket(AF_INET, SOCK_STREAM, 0);

	if (argc != 3) {
		fprintf(stderr, "usage: echo PORT DELAY_MS\n");
		return 2;
	}
	int64_t delay_ns = atol(argv[2]) * 1000000LL;

	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	a.sin_port = htons(atoi(argv[1]));
	event.data.fd = listener;
	need(!bind(listener, (struct sockaddr *)&a, sizeof(a)) && !listen(listener, 1024), "listen");
	need(!epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event), "epoll_ctl");
	for (;;) {
		int ready = epoll_wait(epoll, events, EVENTS, oldest == newest ? -1 : 1);

		for (int i = 0; i < ready; i++) {
			char buf[SIZE];
			int fd = events[i].data.fd;

			if (fd == listener) {
				event.data.fd = accept(listener, NULL, NULL);
				need(event.data.fd >= 0, "accept");
				setsockopt(event.data.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
				need(!epoll_ctl(epoll, EPOLL_CTL_ADD, event.data.fd, &event), "epoll_ctl");
			} else if (recv(fd, buf, SIZE, MSG_WAITALL) != SIZE) {
				close(fd);
			} else if (buf[0] != 's') {
				answer(fd, buf[0]);
			} else {
				need(newest - oldest < WAITING, "too many wait");
				waiting[newest % WAITING].fd = fd;
				waiting[newest++ % WAITING].due_ns = now_ns() + delay_ns;
			}
		}
		for (; oldest != newest && waiting[oldest % WAITING].due_ns <= now_ns(); oldest++)
			answer(waiting[oldest % WAITING].fd, 's');
	}
}
