/*
 * blocked.c: threads that block in system calls, for tests of trackers. Each mode is one way in which they do, or end.
 *
 *   sleeps SEED COUNT MOST_US     one thread; prints before, asked, after (ns of boot time) of each clock_nanosleep
 *   pair COUNT                    one thread in clock_nanosleep, one in ppoll, 50 us each
 *   exec THREADS                  all sleep; one that is not the first calls exec
 *   exit THREADS                  all sleep; the first one ends the process
 *   kill THREADS                  all sleep; the process is killed
 *   signals THREADS               all sleep 50 ms, are interrupted again and again, and end one by one
 *   never THREADS                 all sleep; nobody ends them
 *   again MS                      one thread sleeps so long, again and again; SIGUSR1 interrupts it
 *   vfork MS                      a child borrows the process for so long: it waits uninterruptibly
 *   burn MS                       one thread keeps its processor busy
 *   uring 1                       a connection is accepted by io_uring; prints 1, or 0 where there is none
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <sys/socket.h>
#include <unistd.h>
#include "uring.h"

static pthread_barrier_t all_there;
static long count;

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_BOOTTIME, &t);
	return t.tv_sec * 1000000000ULL + t.tv_nsec;
}

static int nap(uint64_t ns)
{
	struct timespec t = { .tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000 };

	return clock_nanosleep(CLOCK_MONOTONIC, 0, &t, NULL);
}

static void sleeps(unsigned int seed, long most_us)
{
	for (long i = 0; i < count; i++) {
		uint64_t asked = (uint64_t)(rand_r(&seed) % most_us) * 1000, before = now_ns();

		nap(asked);
		uint64_t after = now_ns();

		printf("%llu %llu %llu\n", (unsigned long long)before, (unsigned long long)asked,
		       (unsigned long long)after);
	}
}

static void *many_naps(void *unused)
{
	for (long i = 0; i < count; i++)
		nap(50000);
	return unused;
}

static void *many_polls(void *unused)
{
	struct timespec t = { .tv_nsec = 50000 };

	for (long i = 0; i < count; i++)
		ppoll(NULL, 0, &t, NULL);
	return unused;
}

static void *sleeper(void *unused)
{
	pthread_barrier_wait(&all_there);
	for (;;)
		nap(1000000000000ULL);
	return unused;
}

static void *executor(void *unused)
{
	pthread_barrier_wait(&all_there);
	nap(2000000);
	execl("/bin/true", "true", NULL);
	return unused;
}

static void *interrupted(void *unused)
{
	uint64_t until = now_ns() + 50000000;

	pthread_barrier_wait(&all_there);
	while (now_ns() < until)
		nap(20000000);
	return unused;
}

static int accept_by_uring(void)
{
	struct sockaddr_in here = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
	socklen_t size = sizeof(here);
	struct uring ring = { 0 };

	if (uring_open(&ring))
		return 0;
	if (bind(listener, (struct sockaddr *)&here, size) || listen(listener, 1) ||
	    getsockname(listener, (struct sockaddr *)&here, &size) || connect(client, (struct sockaddr *)&here, size))
		exit(1);
	return uring_do(&ring, IORING_OP_ACCEPT, listener, NULL, 0) >= 0;
}

static void ignore(int signal)
{
}

static void start(pthread_t *threads, long n, void *(*body)(void *))
{
	pthread_attr_t small;

	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 64 << 10);
	for (long i = 0; i < n; i++)
		if (pthread_create(&threads[i], &small, body, NULL)) {
			perror("pthread_create");
			exit(1);
		}
}

int main(int argc, char **argv)
{
	const char *mode = argc > 2 ? argv[1] : "";
	pthread_t threads[1024];

	if (!strcmp(mode, "sleeps") && argc == 5) {
		count = atol(argv[3]);
		sleeps(atoi(argv[2]), atol(argv[4]));
		return 0;
	}
	count = argc > 2 ? atol(argv[2]) : 0;
	if (!strcmp(mode, "pair")) {
		start(threads, 1, many_naps);
		start(threads + 1, 1, many_polls);
		pthread_join(threads[0], NULL);
		pthread_join(threads[1], NULL);
		return 0;
	}
	if (!strcmp(mode, "again")) {
		struct sigaction action = { .sa_handler = ignore };

		sigaction(SIGUSR1, &action, NULL);
		for (;;)
			nap(count * 1000000);
	}
	if (!strcmp(mode, "vfork")) {
		if (!vfork()) {
			nap(count * 1000000);
			_exit(0);
		}
		return 0;
	}
	if (!strcmp(mode, "burn")) {
		for (uint64_t until = now_ns() + count * 1000000; now_ns() < until;)
			;
		return 0;
	}
	if (!strcmp(mode, "uring")) {
		printf("%d\n", accept_by_uring());
		return 0;
	}
	if (count < 2 || count > 1024)
		return 2;
	pthread_barrier_init(&all_there, NULL, count);
	if (!strcmp(mode, "signals")) {
		struct sigaction action = { .sa_handler = ignore };

		sigaction(SIGUSR1, &action, NULL);
		start(threads, count - 1, interrupted);
		pthread_barrier_wait(&all_there);
		for (int round = 0; round < 5; round++) {
			nap(3000000);
			for (long i = 0; i < count - 1; i++)
				pthread_kill(threads[i], SIGUSR1);
		}
		for (long i = 0; i < count - 1; i++)
			pthread_join(threads[i], NULL);
		return 0;
	}
	start(threads, count - 2, sleeper);
	start(threads + count - 2, 1, strcmp(mode, "exec") ? sleeper : executor);
	pthread_barrier_wait(&all_there);
	if (!strcmp(mode, "never"))
		puts("there");
	fflush(stdout);
	if (!strcmp(mode, "exit"))
		return 0;
	if (!strcmp(mode, "kill"))
		kill(getpid(), SIGKILL);
	for (;;)
		nap(1000000000000ULL);
}
