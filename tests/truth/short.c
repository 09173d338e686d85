/* SPDX-License-Identifier: Apache-2.0 */
/*
 * short.c: connections that do nothing but open, one after the other. The server ends each by an RST, so that none
 * stays behind and a port may come again. Build: cc -O2 short.c
 *
 *   short serve COUNT                accept from the listening socket that is descriptor 0
 *   short call ADDRESS PORT COUNT    to an IPv4 address
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void fail(const char *what)
{
	fprintf(stderr, "short: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void serve(long count)
{
	struct linger at_once = { .l_onoff = 1 };

	while (count--) {
		int fd = accept(0, NULL, NULL);

		if (fd < 0)
			fail("accept");
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
		close(fd);
	}
}

static void call(const struct sockaddr_in *peer, long count)
{
	char byte;

	while (count--) {
		int fd = socket(AF_INET, SOCK_STREAM, 0);

		if (fd < 0)
			fail("socket");
		/* the RST may come before connect() has returned */
		if (!connect(fd, (const struct sockaddr *)peer, sizeof(*peer)) && read(fd, &byte, 1) >= 0)
			errno = 0;
		if (errno != ECONNRESET)
			fail("connect");
		close(fd);
	}
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "serve")) {
		serve(atol(argv[2]));
	} else if (argc == 5 && !strcmp(argv[1], "call")) {
		struct sockaddr_in peer = { .sin_family = AF_INET, .sin_port = htons(atoi(argv[3])) };

		if (inet_pton(AF_INET, argv[2], &peer.sin_addr) != 1)
			fail(argv[2]);
		call(&peer, atol(argv[4]));
	} else {
		fprintf(stderr, "usage: short serve COUNT | short call ADDRESS PORT COUNT\n");
		return 2;
	}
	return 0;
}
