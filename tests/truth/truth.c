/* SPDX-License-Identifier: Apache-2.0 */
/*
 * truth.c: a TCP request/response workload that knows the truth about each of its RPCs.
 *
 * Client and server stamp CLOCK_BOOTTIME around their own socket calls and log one record per RPC and side (log.h).
 * It knows nothing of LatencyProbe: tests join its logs with what was measured. Build: cc -O2 -pthread truth.c
 * (-static for a container without libraries).
 *
 *   truth both                       server and client in two processes on one machine
 *   truth server | client            the two halves, for different network namespaces or hosts
 *   truth serve | load               the same for a long run: no log, no end, load counts its errors and goes on
 *   truth delay HOST:PORT MS         make a running server (--control) sleep so long before each response
 */
#include "rpc.h"

#include <arpa/inet.h>
#include <getopt.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum cause {
	CAUSE_NONE,
	CAUSE_SERVER_SLEEP,  /* between reading the request and writing the response */
	CAUSE_SERVER_STOP,   /* the request is readable, the server does not read */
	CAUSE_RESPONSE_GAP,  /* between the first two writes of the response */
	CAUSE_CLIENT_STOP,   /* the response is readable, the client does not read */
	CAUSE_REQUEST_GAP,   /* between the first two writes of the request */
	CAUSE_COUNT,
};

static const char *const cause_names[CAUSE_COUNT] = {
	"none", "server-sleep", "server-stop", "response-gap", "client-stop", "request-gap",
};

static struct {
	const char *address, *control, *log, *client_log;
	uint64_t seed, total, rate, seconds, report_s;
	uint32_t threads, rpcs, single_percent, max_size, size, jitter_us;
	uint32_t cause, every, cause_us;
	bool one_piece, tolerant;
} options = {
	.address = "127.0.0.1:0", .threads = 8, .rpcs = 100, .single_percent = 25, .max_size = 1 << 18,
	.every = 1, .cause_us = 40000,
};

static struct sockaddr_storage peer;
static socklen_t peer_size;
static atomic_uint delay_ms, active;
static atomic_ulong bytes_sent, bytes_received, answered, errors, connections, slowest_us;
static atomic_bool stop;

static void fail(const char *what)
{
	fprintf(stderr, "truth: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void resolve(const char *text)
{
	char host[256];
	const char *port = strrchr(text, ':');
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *found;

	if (!port || port - text >= (long)sizeof(host)) {
		fprintf(stderr, "truth: %s: an address is HOST:PORT or [IPv6]:PORT\n", text);
		exit(2);
	}
	bool bracket = text[0] == '[';
	snprintf(host, sizeof(host), "%.*s", (int)(port - text) - 2 * bracket, text + bracket);
	int error = getaddrinfo(host, port + 1, &hints, &found);
	if (error) {
		fprintf(stderr, "truth: %s: %s\n", text, gai_strerror(error));
		exit(1);
	}
	memcpy(&peer, found->ai_addr, peer_size = found->ai_addrlen);
	freeaddrinfo(found);
}

static uint16_t port_of(const struct sockaddr_storage *a)
{
	return ntohs(((const struct sockaddr_in *)a)->sin_port); /* same place in sockaddr_in6 */
}

/* Options of a connected socket, and what identifies it in the log. */
static void prepare(int fd, struct record *identity)
{
	int on = 1, stamps = SOF_TIMESTAMPING_RX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE;
	struct sockaddr_storage a;
	socklen_t size = sizeof(identity->cookie);

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (options.log)
		setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPING, &stamps, sizeof(stamps));
	getsockopt(fd, SOL_SOCKET, SO_COOKIE, &identity->cookie, &size);
	size = sizeof(a);
	getsockname(fd, (struct sockaddr *)&a, &size);
	identity->local_port = port_of(&a);
	size = sizeof(a);
	getpeername(fd, (struct sockaddr *)&a, &size);
	identity->peer_port = port_of(&a);
}

/* Both sides know from the ordinal which RPC gets the cause. */
static uint32_t cause_of(uint32_t ordinal)
{
	return ordinal % options.every == options.every - 1 ? options.cause : CAUSE_NONE;
}

static uint64_t cause_us(const struct record *r, enum cause cause)
{
	return r->cause == cause ? options.cause_us : 0;
}

static struct cutting cutting(void)
{
	return (struct cutting){ .split = !options.one_piece, .jitter_us = options.jitter_us };
}

/* ---- server ---- */

static void serve_connection(int fd, char *buf)
{
	struct record identity = { .role = 2 };

	prepare(fd, &identity);
	for (uint32_t ordinal = 0;; ordinal++) {
		struct record r = identity;
		struct header h;
		size_t size = 0;

		r.ordinal = ordinal;
		r.cause = cause_of(ordinal);
		size_t got = receive_message(fd, buf, &size, mix(identity.peer_port, ordinal), cutting(),
					     cause_us(&r, CAUSE_SERVER_STOP), &r);
		if (!got)
			return;
		memcpy(&h, buf, sizeof(h));
		if (got != size || h.ordinal != ordinal || h.response_bytes > MAX_MESSAGE || !h.response_bytes) {
			errors++;
			return;
		}
		r.rpc = h.rpc;
		r.request_bytes = size;
		r.response_bytes = h.response_bytes;
		pause_us(cause_us(&r, CAUSE_SERVER_SLEEP) + delay_ms * 1000);
		memset(buf, (char)h.rpc, h.response_bytes);
		if (!send_message(fd, buf, h.response_bytes, h.rpc, cutting(), cause_us(&r, CAUSE_RESPONSE_GAP), &r)) {
			errors++;
			return;
		}
		answered++;
		log_add(&r);
	}
}

/* One of --threads workers: they all wait in accept, so a connection costs no thread start. */
static void *server_worker(void *listener)
{
	char *buf = malloc(MAX_MESSAGE);

	for (;;) {
		int fd = accept(*(int *)listener, NULL, NULL);
		if (fd < 0)
			continue;
		active++;
		connections++;
		serve_connection(fd, buf);
		close(fd);
		active--;
	}
	return NULL;
}

static int listen_at(struct sockaddr_storage *a, socklen_t size)
{
	int on = 1, fd = socket(a->ss_family, SOCK_STREAM, 0);

	if (fd < 0)
		fail("socket");
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(fd, (struct sockaddr *)a, size) || listen(fd, 4096) || getsockname(fd, (struct sockaddr *)a, &size))
		fail("listen");
	return fd;
}

/* The control port: a line with a number of ms sets the delay, the answer is that number. */
static void *control_worker(void *listener)
{
	for (;;) {
		char text[32] = "";
		int fd = accept(*(int *)listener, NULL, NULL);

		if (fd >= 0 && recv(fd, text, sizeof(text) - 1, 0) > 0) {
			delay_ms = strtoul(text, NULL, 10);
			dprintf(fd, "%u\n", delay_ms);
		}
		close(fd);
	}
	return NULL;
}

static void start(void *(*worker)(void *), void *argument)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, worker, argument))
		fail("pthread_create");
	pthread_detach(thread);
}

/* Serve until SIGTERM or SIGINT, then finish the open connections and the log. */
static int run_server(int listener, const sigset_t *signals)
{
	int caught, control;

	log_open(options.log);
	for (uint32_t i = 0; i < options.threads; i++)
		start(server_worker, &listener);
	if (options.control) {
		resolve(options.control);
		control = listen_at(&peer, peer_size);
		start(control_worker, &control);
	}
	sigwait(signals, &caught);
	for (int ms = 0; active && ms < 2000; ms++)
		pause_us(1000);
	log_close();
	printf("{\"side\":\"server\",\"answered\":%lu,\"connections\":%lu,\"errors\":%lu}\n", answered, connections,
	       errors);
	return errors && !options.tolerant;
}

/* ---- client ---- */

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

/* ---- modes ---- */

static int run_both(const sigset_t *signals)
{
	int status, listener = listen_at(&peer, peer_size);
	char path[4096];
	pid_t server = fork();

	if (server < 0)
		fail("fork");
	if (!server) {
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		if (options.log) {
			snprintf(path, sizeof(path), "%s.server.npy", options.log);
			options.log = path;
		}
		exit(run_server(listener, signals));
	}
	close(listener);
	if (options.log) {
		snprintf(path, sizeof(path), "%s.client.npy", options.log);
		options.client_log = path;
	}
	int failed = run_client(signals);
	kill(server, SIGTERM);
	waitpid(server, &status, 0);
	return failed || status;
}

static int set_delay(const char *ms)
{
	char answer[32] = "";
	int fd = socket(peer.ss_family, SOCK_STREAM, 0);

	if (fd < 0 || connect(fd, (struct sockaddr *)&peer, peer_size))
		fail("connect");
	dprintf(fd, "%s\n", ms);
	if (recv(fd, answer, sizeof(answer) - 1, 0) <= 0)
		fail("no answer");
	fputs(answer, stdout);
	return 0;
}

static const char *const usage =
	"usage: truth both|server|client|serve|load [options], truth delay HOST:PORT MS\n"
	"  --address HOST:PORT   where to listen, or whom to call (both: port 0 = any; serve, load: as well)\n"
	"  --threads N           concurrent connections; of a server: how many it serves at once\n"
	"  --total N             client: RPCs in all (0 = no end)\n"
	"  --rpcs N              client: mean RPCs of a connection; --single-percent P have exactly one\n"
	"  --max-size N, --size N  client: largest random, or fixed message size in bytes\n"
	"  --seed N, --one-piece, --jitter-us N   one call per message; else random pieces with random gaps\n"
	"  --cause NAME --every K --cause-ms N    every K-th RPC of a connection (both sides need the same):\n"
	"                        server-sleep, server-stop, response-gap, client-stop, request-gap\n"
	"  --rate N, --seconds N, --report N      client: RPCs/s, end, totals as JSON every N s\n"
	"  --log PATH            write the log (both: PATH.client.npy, PATH.server.npy)\n"
	"  --delay-ms N, --control HOST:PORT      server: sleep before each response; where it can be changed\n";

static uint32_t cause_named(const char *name)
{
	for (uint32_t i = 0; i < CAUSE_COUNT; i++)
		if (!strcmp(name, cause_names[i]))
			return i;
	fprintf(stderr, "truth: --cause %s: unknown\n%s", name, usage);
	exit(2);
}

static void parse(int argc, char **argv)
{
	static const struct option names[] = {
		{ "address", 1, 0, 'a' }, { "threads", 1, 0, 't' }, { "total", 1, 0, 'n' }, { "rpcs", 1, 0, 'r' },
		{ "single-percent", 1, 0, '1' }, { "max-size", 1, 0, 'm' }, { "size", 1, 0, 'b' }, { "seed", 1, 0, 's' },
		{ "one-piece", 0, 0, 'p' }, { "jitter-us", 1, 0, 'j' }, { "cause", 1, 0, 'c' }, { "every", 1, 0, 'k' },
		{ "cause-ms", 1, 0, 'w' }, { "rate", 1, 0, 'R' }, { "seconds", 1, 0, 'S' }, { "report", 1, 0, 'P' },
		{ "log", 1, 0, 'l' }, { "delay-ms", 1, 0, 'd' }, { "control", 1, 0, 'C' }, { 0 },
	};
	for (int o; (o = getopt_long(argc, argv, "", names, NULL)) != -1;) {
		uint64_t number = optarg ? strtoull(optarg, NULL, 10) : 0;

		switch (o) {
		case 'a': options.address = optarg; break;
		case 't': options.threads = number; break;
		case 'n': options.total = number; break;
		case 'r': options.rpcs = number; break;
		case '1': options.single_percent = number; break;
		case 'm': options.max_size = number; break;
		case 'b': options.size = number; break;
		case 's': options.seed = number; break;
		case 'p': options.one_piece = true; break;
		case 'j': options.jitter_us = number; break;
		case 'c': options.cause = cause_named(optarg); break;
		case 'k': options.every = number; break;
		case 'w': options.cause_us = number * 1000; break;
		case 'R': options.rate = number; break;
		case 'S': options.seconds = number; break;
		case 'P': options.report_s = number; break;
		case 'l': options.log = optarg; break;
		case 'd': delay_ms = number; break;
		case 'C': options.control = optarg; break;
		default: fputs(usage, stderr); exit(2);
		}
	}
	if (!options.threads || !options.rpcs || !options.every || !options.max_size || options.max_size > MAX_MESSAGE ||
	    options.size > MAX_MESSAGE) {
		fprintf(stderr, "truth: --threads, --rpcs, --every, --max-size: 1 or more; sizes: at most %d\n", MAX_MESSAGE);
		exit(2);
	}
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";
	sigset_t signals;

	if (!strcmp(mode, "delay") && argc == 4) {
		resolve(argv[2]);
		return set_delay(argv[3]);
	}
	options.tolerant = !strcmp(mode, "serve") || !strcmp(mode, "load");
	parse(argc - 1, argv + 1);
	resolve(options.address);
	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	pthread_sigmask(SIG_BLOCK, &signals, NULL);
	if (!strcmp(mode, "both"))
		return run_both(&signals);
	if (!strcmp(mode, "server") || !strcmp(mode, "serve"))
		return run_server(listen_at(&peer, peer_size), &signals);
	if (!strcmp(mode, "client") || !strcmp(mode, "load"))
		return run_client(&signals);
	fputs(usage, stderr);
	return 2;
}
