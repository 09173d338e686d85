/* SPDX-License-Identifier: Apache-2.0 */
/* pause.c: the first process of every pod. It holds the namespaces, reaps orphans and ends on SIGTERM. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int signal)
{
	(void)signal;
	_exit(0);
}

static void reap(int signal)
{
	(void)signal;
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
}

int main(void)
{
	struct sigaction on_end = { .sa_handler = end }, on_child = { .sa_handler = reap, .sa_flags = SA_NOCLDSTOP };

	sigaction(SIGTERM, &on_end, NULL);
	sigaction(SIGINT, &on_end, NULL);
	sigaction(SIGCHLD, &on_child, NULL);
	for (;;)
		pause();
}
