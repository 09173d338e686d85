/* SPDX-License-Identifier: Apache-2.0 */
/*
 * openloop.c: requests at times that no answer moves, and how long each took since it was *meant* to be sent.
 *
 *   openloop PORT KIND CONNECTIONS PER_SECOND SECONDS SLOW_EVERY
 *
 * KIND: `redis` (GET of a key that is not there) or `echo` (64 bytes to echo.c, of which each SLOW_EVERY-th asks to be
 * answered late; 0: none). Arrivals are Poisson, from one seed: the same schedule each time. A connection has one
 * request under way; what finds none free waits, and the wait is part of its latency. What could not be sent until 10 s
 * after the end is not sent at all.
 *
 * Prints one line of JSON. Times in ns; `slow`: requests that asked for a late answer; `over`: answers later than 25 ms
 * after their request was sent. What was meant for the first tenth of the time, a second at most, counts, but has no part
 * in the quantiles.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "common.h"

enum { SUB_BITS = 8, BUCKETS = (64 - SUB_BITS + 1) << SUB_BITS, EVENTS = 256, MESSAGE = 64 };

static const int64_t LATE_NS = 25000000, LONGEST_WAIT_NS = 100000000, GRACE_NS = 10000000000;

struct connection {
	int fd;
	int missing; /* bytes of the answer */
	int64_t intended, sent;
};

static const struct {
	const char *name, *request;
	int request_size, answer_size;
} kinds[] = { { "redis", "GET k\r\n", 7, 5 }, { "echo", NULL, 64, 64 } };

static uint64_t counts[BUCKETS], recorded;
static uint64_t random_state = 88172645463325252ULL;

/* Time to the next arrival of a Poisson process (xorshift64). */
static double gap_ns(double per_second)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return -log(((random_state >> 11) + 0.5) / 9007199254740992.0) * 1e9 / per_second;
}

/* Buckets of 1/256 of an octave: 0.4 % wide. */
static int bucket_of(uint64_t ns)
{
	int octave = ns >> SUB_BITS ? 63 - __builtin_clzll(ns) - SUB_BITS : 0;

	return (octave << SUB_BITS) + (ns >> octave);
}

static double middle_of(int bucket)
{
	int octave = bucket >> SUB_BITS ? (bucket >> SUB_BITS) - 1 : 0;

	return ldexp(bucket - (octave << SUB_BITS) + 0.5, octave);
}

static double quantile_ns(double q)
{
	uint64_t before = 0;

	for (int i = 0; i < BUCKETS; i++) {
		before += counts[i];
		if (before && before >= q * recorded)
			return middle_of(i);
	}
	return 0;
}

/* Everything of one run. Free connections are a circle: each has its turn. */
static struct {
	struct connection *all;
	int *free_ones, first, spare, connections, epoll, kind, slow_every;
	double per_second, intended; /* when the next request is meant to be sent */
	int64_t now, end, recorded_from, last, longest;
	uint64_t sent, answered, slow, over;
} run;

static void connect_all(int port)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				 .sin_port = htons(port) };
	int on = 1;

	run.all = calloc(run.connections, sizeof(*run.all));
	run.free_ones = calloc(run.connections, sizeof(*run.free_ones));
	run.epoll = epoll_create1(0);
	need(run.all && run.free_ones && run.epoll >= 0, "epoll_create1");
	for (int i = 0; i < run.connections; i++) {
		struct epoll_event event = { .events = EPOLLIN, .data.u32 = i };
		int fd = socket(AF_INET, SOCK_STREAM, 0);

		need(fd >= 0 && !connect(fd, (struct sockaddr *)&a, sizeof(a)), "connect");
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
		need(!epoll_ctl(run.epoll, EPOLL_CTL_ADD, fd, &event), "epoll_ctl");
		run.all[i].fd = fd;
		run.free_ones[run.spare++] = i;
	}
}

/* Whether there is a request that has not been sent. */
static int more(void)
{
	return run.intended < run.end;
}

/* Send all that is due, as far as connections are free. */
static void send_due(void)
{
	char buf[MESSAGE];

	for (; run.spare && more() && run.intended <= run.now && run.now < run.end + GRACE_NS;
	     run.intended += gap_ns(run.per_second)) {
		struct connection *one = &run.all[run.free_ones[run.first]];
		int late = run.slow_every && run.sent % run.slow_every == (uint64_t)run.slow_every - 1;
		int size = kinds[run.kind].request_size;

		memset(buf, late ? 's' : 'f', sizeof(buf));
		if (kinds[run.kind].request)
			memcpy(buf, kinds[run.kind].request, size);
		one->intended = run.intended;
		one->sent = run.now = now_ns();
		one->missing = kinds[run.kind].answer_size;
		need(send(one->fd, buf, size, 0) == size, "send");
		run.first = (run.first + 1) % run.connections;
		run.spare--;
		run.sent++;
		run.slow += late;
	}
}

static void answered(struct connection *one)
{
	run.last = run.now;
	run.over += run.now - one->sent > LATE_NS;
	if (one->intended >= run.recorded_from) {
		int64_t took = run.now - one->intended;

		counts[bucket_of(took)]++;
		recorded++;
		run.longest = took > run.longest ? took : run.longest;
	}
	run.free_ones[(run.first + run.spare++) % run.connections] = one - run.all;
	run.answered++;
}

/* Wait for answers, until the next request is due at the latest. */
static void receive(void)
{
	int64_t until = run.spare && more() ? (int64_t)run.intended - now_ns() : LONGEST_WAIT_NS;
	struct timespec wait = { .tv_nsec = until < 0 ? 0 : until > LONGEST_WAIT_NS ? LONGEST_WAIT_NS : until };
	struct epoll_event events[EVENTS];
	char buf[MESSAGE];
	int ready = epoll_pwait2(run.epoll, events, EVENTS, &wait, NULL);

	need(ready >= 0 || errno == EINTR, "epoll_pwait2");
	run.now = now_ns();
	for (int i = 0; i < ready; i++) {
		struct connection *one = &run.all[events[i].data.u32];
		ssize_t got = recv(one->fd, buf, one->missing, MSG_DONTWAIT);

		need(got > 0, "recv");
		one->missing -= got;
		if (!one->missing)
			answered(one);
	}
}

int main(int argc, char **argv)
{
	struct rlimit files;

	run.kind = argc == 7 && !strcmp(argv[2], "echo");
	if (argc != 7 || strcmp(argv[2], kinds[run.kind].name) || atoi(argv[3]) < 1 || atof(argv[4]) <= 0) {
		fprintf(stderr, "usage: openloop PORT redis|echo CONNECTIONS PER_SECOND SECONDS SLOW_EVERY\n");
		return 2;
	}
	double seconds = atof(argv[5]);

	run.connections = atoi(argv[3]);
	run.per_second = atof(argv[4]);
	run.slow_every = atoi(argv[6]);
	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
	prctl(PR_SET_TIMERSLACK, 1); /* else the kernel wakes us up to 50 us late */
	connect_all(atoi(argv[1]));
	int64_t began = run.now = run.last = now_ns();

	run.end = began + seconds * 1e9;
	run.recorded_from = began + fmin(seconds / 10, 1) * 1e9;
	run.intended = began + gap_ns(run.per_second);
	while ((more() && run.now < run.end + GRACE_NS) ||
	       (run.answered < run.sent && run.now < run.end + 2 * GRACE_NS)) {
		send_due();
		receive();
	}
	printf("{\"sent\": %lu, \"answered\": %lu, \"slow\": %lu, \"over\": %lu, \"seconds\": %.3f, \"p50_ns\": %.0f, "
	       "\"p90_ns\": %.0f, \"p99_ns\": %.0f, \"p999_ns\": %.0f, \"longest_ns\": %ld}\n",
	       run.sent, run.answered, run.slow, run.over, (run.last - began) / 1e9, quantile_ns(0.5), quantile_ns(0.9),
	       quantile_ns(0.99), quantile_ns(0.999), run.longest);
	return 0;
}
