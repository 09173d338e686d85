/*
 * waiter.c: a server whose threads wait in functions of known names: waiter PORT. A request is one line, `ACT ARGUMENT`;
 * the answer one line with when the act began and ended (ns of the boot clock) and its thread, as waiting_server.py's.
 * Each wait is a system call of its own function's, so that its frames are of this file alone, up to `entry`, with which
 * each thread begins as the ABI has it.
 *
 *   sleep MS, poll MS     three functions deep
 *   lock MS               until a thread called `gc` has let go of a lock
 *   process MS [FOLDER]   until a child called `other` has, from that cgroup
 *   timeout MS            nobody lets go of it
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define FUNCTION __attribute__((noinline, noclone, noipa))

static int *lock; /* shared with children: 1 while somebody holds it */
static long lock_ms;
static char folder[256];

static inline __attribute__((always_inline)) long call(long nr, long a, long b, long c, long d)
{
	register long fourth __asm__("r10") = d;
	register long fifth __asm__("r8") = 0;
	long ret;

	__asm__ volatile("syscall"
			 : "=a"(ret)
			 : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(fourth), "r"(fifth)
			 : "rcx", "r11", "memory");
	return ret;
}

#define KEEP_FRAME __asm__ volatile("" : : "r"(__builtin_frame_address(0)))

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_BOOTTIME, &t);
	return t.tv_sec * 1000000000ULL + t.tv_nsec;
}

static inline struct timespec milliseconds(long ms)
{
	return (struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };
}

FUNCTION void nap(long ms)
{
	struct timespec t = milliseconds(ms);

	call(SYS_nanosleep, (long)&t, 0, 0, 0);
	KEEP_FRAME;
}

FUNCTION void poll_nothing(long ms)
{
	struct timespec t = milliseconds(ms);

	call(SYS_ppoll, 0, 0, (long)&t, 0);
	KEEP_FRAME;
}

FUNCTION void sleeps_deeper(long ms)
{
	nap(ms);
	KEEP_FRAME;
}

FUNCTION void sleeps(long ms)
{
	sleeps_deeper(ms);
	KEEP_FRAME;
}

FUNCTION void polls_deeper(long ms)
{
	poll_nothing(ms);
	KEEP_FRAME;
}

FUNCTION void polls(long ms)
{
	polls_deeper(ms);
	KEEP_FRAME;
}

FUNCTION void wait_for_lock(long ms)
{
	struct timespec t = milliseconds(ms);

	while (__atomic_load_n(lock, __ATOMIC_ACQUIRE) == 1)
		if (call(SYS_futex, (long)lock, FUTEX_WAIT, 1, ms ? (long)&t : 0) == -110)
			return;
}

FUNCTION void let_go(void)
{
	__atomic_store_n(lock, 0, __ATOMIC_RELEASE);
	call(SYS_futex, (long)lock, FUTEX_WAKE, 1, 0);
	KEEP_FRAME;
}

FUNCTION void collect(void)
{
	prctl(PR_SET_NAME, "gc");
	nap(lock_ms);
	let_go();
	KEEP_FRAME;
}

static void *garbage_collector(void *unused)
{
	collect();
	return unused;
}

static void locks(long ms)
{
	pthread_t gc;

	lock_ms = ms;
	__atomic_store_n(lock, 1, __ATOMIC_RELEASE);
	pthread_create(&gc, NULL, garbage_collector, NULL);
	wait_for_lock(0);
	pthread_join(gc, NULL);
}

static void processes(long ms)
{
	int status, file;
	pid_t child;

	__atomic_store_n(lock, 1, __ATOMIC_RELEASE);
	child = fork();
	if (!child) {
		prctl(PR_SET_NAME, "other");
		if (*folder) {
			file = open(folder, O_WRONLY);
			if (write(file, "0", 1) != 1)
				_exit(1);
		}
		nap(ms);
		let_go();
		_exit(0);
	}
	wait_for_lock(0);
	waitpid(child, &status, 0);
}

FUNCTION void serve(int connection)
{
	char line[512], act[32], answer[128];
	ssize_t size;
	long ms;

	while ((size = recv(connection, line, sizeof(line) - 1, 0)) > 0) {
		uint64_t began = now_ns();

		line[size] = *folder = 0;
		if (sscanf(line, "%31s %ld %255s", act, &ms, folder) < 2)
			break;
		if (!strcmp(act, "sleep"))
			sleeps(ms);
		else if (!strcmp(act, "poll"))
			polls(ms);
		else if (!strcmp(act, "lock"))
			locks(ms);
		else if (!strcmp(act, "process"))
			processes(ms);
		else if (!strcmp(act, "timeout")) {
			*lock = 1;
			wait_for_lock(ms);
		}
		size = snprintf(answer, sizeof(answer), "%llu %llu %ld\n", (unsigned long long)began,
				(unsigned long long)now_ns(), (long)gettid());
		if (send(connection, answer, size, MSG_NOSIGNAL) != size)
			break;
	}
	close(connection);
}

/* void *entry(void *connection): the frame pointer is 0, and `serve` is called. */
void *entry(void *connection);
__asm__(".text\n.type entry, @function\nentry:\n"
	"push %rbp\nxor %ebp, %ebp\ncall serve\npop %rbp\nxor %eax, %eax\nret\n.size entry, . - entry\n");

int main(int argc, char **argv)
{
	struct sockaddr_in here = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	if (argc != 2)
		return 2;
	here.sin_port = htons(atoi(argv[1]));
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	lock = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (lock == MAP_FAILED || bind(listener, (struct sockaddr *)&here, sizeof(here)) || listen(listener, 16)) {
		perror("waiter");
		return 1;
	}
	for (;;) {
		int connection = accept(listener, NULL, NULL);
		pthread_t thread;

		setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		pthread_create(&thread, NULL, entry, (void *)(long)connection);
		pthread_detach(thread);
	}
}
