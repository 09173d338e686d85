/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pingpong.c: CPU time of one RPC over loopback, client and server process on one CPU.
 *
 *   pingpong PORT CPU SIZE TURNS   prints the CPU time of both processes per turn, in ns
 *
 * One CPU: the two take turns anyway, and no wake-up of another (virtual) CPU blurs the figure. The CPU clock is the
 * number in /proc/PID/schedstat, read without waiting for the next tick.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "common.h"

enum { WARM_UP = 2000, MAX_SIZE = 65536 };

static char buf[MAX_SIZE];

/* `turns` turns of one side; returns the CPU time of those after the warm-up. */
static long long play(int fd, int size, long turns, int client)
{
	long long began = 0;

	for (long i = -WARM_UP; i < turns; i++) {
		if (!i)
			began = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
		if (client)
			need(send(fd, buf, size, 0) == size, "send");
		need(recv(fd, buf, size, MSG_WAITALL) == size, "recv");
		if (!client)
			need(send(fd, buf, size, 0) == size, "send");
	}
	return clock_ns(CLOCK_PROCESS_CPUTIME_ID) - began;
}

int main(int argc, char **argv)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof(a);
	long long ours, theirs;
	int on = 1, pipes[2], listener = socket(AF_INET, SOCK_STREAM, 0);
	cpu_set_t cpus;

	if (argc != 5 || atoi(argv[3]) < 1 || atoi(argv[3]) > MAX_SIZE) {
		fprintf(stderr, "usage: pingpong PORT CPU SIZE TURNS\n");
		return 2;
	}
	int size = atoi(argv[3]);
	long turns = atol(argv[4]);
	CPU_ZERO(&cpus);
	CPU_SET(atoi(argv[2]), &cpus);
	need(!sched_setaffinity(0, sizeof(cpus), &cpus), "sched_setaffinity");
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	a.sin_port = htons(atoi(argv[1]));
	need(!bind(listener, (struct sockaddr *)&a, length) && !listen(listener, 1), "listen");
	need(!pipe(pipes), "pipe");
	int child = fork();
	need(child >= 0, "fork");
	int fd = child ? socket(AF_INET, SOCK_STREAM, 0) : accept(listener, NULL, NULL);
	need(fd >= 0 && (!child || !connect(fd, (struct sockaddr *)&a, length)), "connect");
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	ours = play(fd, size, turns, child);
	if (!child)
		return write(pipes[1], &ours, sizeof(ours)) != sizeof(ours);
	need(read(pipes[0], &theirs, sizeof(theirs)) == sizeof(theirs), "server");
	waitpid(child, NULL, 0);
	printf("%.1f\n", (double)(ours + theirs) / turns);
	return 0;
}
