/* SPDX-License-Identifier: Apache-2.0 */
/* options.h: the command line, and which RPC gets an injected cause. */
#ifndef TRUTH_OPTIONS_H
#define TRUTH_OPTIONS_H

#include "rpc.h"

#include <getopt.h>

enum cause {
	CAUSE_NONE,
	CAUSE_SERVER_SLEEP, /* between reading the request and writing the response */
	CAUSE_SERVER_STOP,  /* the request is readable, the server does not read */
	CAUSE_RESPONSE_GAP, /* between the first two writes of the response */
	CAUSE_CLIENT_STOP,  /* the response is readable, the client does not read */
	CAUSE_REQUEST_GAP,  /* between the first two writes of the request */
	CAUSE_COUNT,
};

static const char *const cause_names[CAUSE_COUNT] = {
	"none", "server-sleep", "server-stop", "response-gap", "client-stop", "request-gap",
};

static struct {
	const char *address, *control, *log, *client_log;
	uint64_t seed, total, rate, seconds, report_s, threads, rpcs, single_percent;
	uint64_t max_size, size, jitter_us, cause, every, cause_ms, delay_ms;
	bool one_piece, tolerant;
} options = {
	.address = "127.0.0.1:0",
	.threads = 8,
	.rpcs = 100,
	.single_percent = 25,
	.max_size = 1 << 18,
	.every = 1,
	.cause_ms = 40,
};

/* Both sides know from the ordinal which RPC gets the cause. */
static uint32_t cause_of(uint32_t ordinal)
{
	return ordinal % options.every == options.every - 1 ? options.cause : CAUSE_NONE;
}

static uint64_t cause_us(const struct record *r, enum cause cause)
{
	return r->cause == cause ? options.cause_ms * 1000 : 0;
}

static struct cutting cutting(void)
{
	return (struct cutting){ .split = !options.one_piece, .jitter_us = options.jitter_us };
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

static uint64_t cause_named(const char *name)
{
	for (uint32_t i = 0; i < CAUSE_COUNT; i++)
		if (!strcmp(name, cause_names[i]))
			return i;
	fprintf(stderr, "truth: --cause %s: unknown\n%s", name, usage);
	exit(2);
}

static void parse(int argc, char **argv)
{
	static const char *cause = "none";
	static const struct {
		const char *name;
		const char **text;
		uint64_t *number;
		bool *flag;
	} table[] = {
		{ "address", .text = &options.address },
		{ "control", .text = &options.control },
		{ "log", .text = &options.log },
		{ "cause", .text = &cause },
		{ "threads", .number = &options.threads },
		{ "total", .number = &options.total },
		{ "rpcs", .number = &options.rpcs },
		{ "single-percent", .number = &options.single_percent },
		{ "max-size", .number = &options.max_size },
		{ "size", .number = &options.size },
		{ "seed", .number = &options.seed },
		{ "jitter-us", .number = &options.jitter_us },
		{ "every", .number = &options.every },
		{ "cause-ms", .number = &options.cause_ms },
		{ "rate", .number = &options.rate },
		{ "seconds", .number = &options.seconds },
		{ "report", .number = &options.report_s },
		{ "delay-ms", .number = &options.delay_ms },
		{ "one-piece", .flag = &options.one_piece },
	};
	enum { OPTIONS = sizeof(table) / sizeof(table[0]) };
	struct option names[OPTIONS + 1] = {};

	for (int i = 0; i < OPTIONS; i++)
		names[i] = (struct option){ table[i].name, !table[i].flag, NULL, i };
	for (int i; (i = getopt_long(argc, argv, "", names, NULL)) != -1;) {
		if (i >= OPTIONS) {
			fputs(usage, stderr);
			exit(2);
		}
		if (table[i].text)
			*table[i].text = optarg;
		else if (table[i].number)
			*table[i].number = strtoull(optarg, NULL, 10);
		else
			*table[i].flag = true;
	}
	options.cause = cause_named(cause);
	if (!options.threads || !options.rpcs || !options.every || !options.max_size ||
	    options.max_size > MAX_MESSAGE || options.size > MAX_MESSAGE) {
		fprintf(stderr, "truth: --threads, --rpcs, --every, --max-size: 1 or more; sizes: at most %d\n",
			MAX_MESSAGE);
		exit(2);
	}
}

#endif
