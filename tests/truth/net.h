/* SPDX-License-Identifier: Apache-2.0 */
/* net.h: addresses, and what a connected socket needs to be measured. */
#ifndef TRUTH_NET_H
#define TRUTH_NET_H

#include "options.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdatomic.h>

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

static void start(void *(*worker)(void *), void *argument)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, worker, argument))
		fail("pthread_create");
	pthread_detach(thread);
}

#endif
