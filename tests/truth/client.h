/* SPDX-License-Identifier: Apache-2.0 */
/* client.h: makes connections and RPCs, all derived from the seed. */
#ifndef TRUTH_CLIENT_H
#define TRUTH_CLIENT_H

#include "net.h"

/* The next connection's first RPC and number of RPCs; false when --total is given out. */
static bool next_connection(uint64_t *first, uint64_t *count)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static uint64_t index, given;

	pthread_mutex_lock(&lock);
	uint64_t random = mix(options.seed, index++);
	*first = given;
	*count = random % 100 < options.single_percent ? 1 : 1 + (random >> 8) % (2 * options.rpcs - 1);
	if (options.total && *count > options.total - given)
		*count = options.total - given;
	given += *count;
	pthread_mutex_unlock(&lock);
	return *count;
}

/* Log-uniform from 1 to --max-size. */
static uint32_t message_size(uint64_t random)
{
	if (options.size)
		return options.size;
	uint32_t power = random % (32 - __builtin_clz(options.max_size));
	uint32_t size = (1u << power) + (random >> 32) % (1u << power);
	return size > options.max_size ? options.max_size : size;
}

static bool call(int fd, char *buf, uint64_t number, struct record *r)
{
	r->rpc = options.seed << 32 | number;
	r->cause = cause_of(r->ordinal);
	r->request_bytes = message_size(mix(r->rpc, 11));
	r->response_bytes = message_size(mix(r->rpc, 12));
	if (r->cause == CAUSE_RESPONSE_GAP && r->response_bytes < 2)
		r->response_bytes = 2; /* there is no gap in one byte */
	if (r->request_bytes < sizeof(struct header))
		r->request_bytes = sizeof(struct header);
	struct header h = { r->rpc, r->ordinal, r->request_bytes, r->response_bytes, MAGIC };
	memcpy(buf, &h, sizeof(h));
	if (!send_message(fd, buf, r->request_bytes, r->rpc, cutting(), cause_us(r, CAUSE_REQUEST_GAP), r))
		return false;
	size_t size = r->response_bytes;
	size_t got = receive_message(fd, buf, &size, mix(r->rpc, 13), cutting(), cause_us(r, CAUSE_CLIENT_STOP), r);
	return got == size && buf[0] == (char)r->rpc && buf[size - 1] == (char)r->rpc;
}

static void count_answer(const struct record *r)
{
	unsigned long us = (r->read_last_ns - r->send_start_ns) / 1000, seen = slowest_us;

	answered++;
	bytes_sent += r->request_bytes;
	bytes_received += r->response_bytes;
	while (us > seen && !atomic_compare_exchange_weak(&slowest_us, &seen, us))
		;
	log_add(r);
}

static void client_failed(const char *what)
{
	if (!options.tolerant)
		fail(what);
	errors++;
	pause_us(100000);
}

static void *client_worker(void *unused)
{
	char *buf = malloc(MAX_MESSAGE);
	uint64_t first, count;
	int64_t interval_ns = options.rate ? 1000000000LL * options.threads / options.rate : 0;
	int64_t due_ns = clock_ns(CLOCK_MONOTONIC);

	while (!stop && next_connection(&first, &count)) {
		struct record identity = { .role = 1 };
		int fd = socket(peer.ss_family, SOCK_STREAM, 0);

		if (fd < 0 || connect(fd, (struct sockaddr *)&peer, peer_size)) {
			client_failed("connect");
			count = 0;
		} else {
			connections++;
			prepare(fd, &identity);
		}
		for (uint64_t i = 0; i < count && !stop; i++) {
			struct record r = identity;

			r.ordinal = i;
			if (interval_ns) {
				struct timespec until = { due_ns / 1000000000, due_ns % 1000000000 };
				clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
				due_ns += interval_ns;
			}
			if (!call(fd, buf, first + i, &r)) {
				client_failed("call");
				break;
			}
			count_answer(&r);
		}
		close(fd);
	}
	free(buf);
	return unused;
}

static void print_client(double seconds, bool done)
{
	printf("{\"side\":\"client\",\"answered\":%lu,\"connections\":%lu,\"errors\":%lu,\"bytes_sent\":%lu,"
	       "\"bytes_received\":%lu,\"slowest_us\":%lu,\"seconds\":%.3f,\"done\":%s}\n",
	       answered, connections, errors, bytes_sent, bytes_received, slowest_us, seconds, done ? "true" : "false");
	fflush(stdout);
}

/* Ends at --total, after --seconds, or at a signal. */
static void *client_clock(void *signals)
{
	int64_t began = clock_ns(CLOCK_MONOTONIC);
	struct timespec tick = { .tv_sec = options.report_s ? options.report_s : 1 };

	for (uint64_t s = tick.tv_sec; !options.seconds || s <= options.seconds; s += tick.tv_sec) {
		if (sigtimedwait(signals, NULL, &tick) > 0)
			break;
		if (options.report_s)
			print_client((clock_ns(CLOCK_MONOTONIC) - began) / 1e9, false);
	}
	stop = true;
	return NULL;
}

static int run_client(const sigset_t *signals)
{
	pthread_t *threads = calloc(options.threads, sizeof(*threads));
	int64_t began = clock_ns(CLOCK_MONOTONIC);

	log_open(options.client_log ? options.client_log : options.log);
	start(client_clock, (void *)signals);
	for (uint32_t i = 0; i < options.threads; i++)
		if (pthread_create(&threads[i], NULL, client_worker, NULL))
			fail("pthread_create");
	for (uint32_t i = 0; i < options.threads; i++)
		pthread_join(threads[i], NULL);
	log_close();
	print_client((clock_ns(CLOCK_MONOTONIC) - began) / 1e9, true);
	return errors && !options.tolerant;
}

#endif
