/* SPDX-License-Identifier: Apache-2.0 */
/* server.h: answers each request as its header asks. */
#ifndef TRUTH_SERVER_H
#define TRUTH_SERVER_H

#include "net.h"

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

/* Serve until SIGTERM or SIGINT, then finish the open connections and the log. */
static int run_server(int listener, const sigset_t *signals)
{
	int caught, control;

	delay_ms = options.delay_ms;
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

#endif
