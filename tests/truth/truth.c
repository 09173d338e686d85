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
#include "client.h"
#include "server.h"

#include <sys/prctl.h>
#include <sys/wait.h>

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
