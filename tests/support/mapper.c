// mapper ROOT LATER FILE...: a process with a root of its own, as a container has it, that maps files as code, prints
// where, and then takes LATER as its root: their paths then lead to what is there. "-": none. Ends with its input.
// In place of a file, memory as JITs have it: "anonymous", "named", "shared", "memfd".
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SIZE (1 << 16)

static int enter(const char *root)
{
	if (unshare(CLONE_NEWNS) || mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL))
		return -1;
	if (mount(root, root, NULL, MS_BIND, NULL) || chdir(root))
		return -1;
	if (syscall(SYS_pivot_root, ".", ".") || umount2(".", MNT_DETACH) || chdir("/"))
		return -1;
	mount("proc", "/proc", "proc", 0, NULL); // where there is a folder for it
	return 0;
}

static void *map(const char *what, int file)
{
	const int code = PROT_READ | PROT_EXEC;
	if (!strcmp(what, "shared"))
		return mmap(NULL, SIZE, code, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (!strcmp(what, "memfd")) {
		file = memfd_create("doublemapper", MFD_CLOEXEC);
		return ftruncate(file, SIZE) ? MAP_FAILED : mmap(NULL, SIZE, code, MAP_SHARED, file, 0);
	}
	if (strcmp(what, "anonymous") && strcmp(what, "named"))
		return mmap(NULL, SIZE, code, MAP_PRIVATE, file, 0);
	void *memory = mmap(NULL, SIZE, code, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (!strcmp(what, "named")) // not every kernel has names
		prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, memory, SIZE, "Ruby:rb_yjit_reserve_addr_space");
	return memory;
}

int main(int argc, char **argv)
{
	if (argc < 3 || (strcmp(argv[1], "-") && enter(argv[1]))) {
		perror("mapper");
		return 1;
	}
	for (int i = 3; i < argc; i++) {
		int file = open(argv[i], O_RDONLY);
		void *code = map(argv[i], file);
		if (code == MAP_FAILED) {
			perror(argv[i]);
			return 1;
		}
		printf("%lx\n", (unsigned long)code);
		if (file >= 0)
			close(file);
	}
	if (strcmp(argv[2], "-") && enter(argv[2])) {
		perror(argv[2]);
		return 1;
	}
	printf("ready\n");
	fflush(stdout);
	char byte;
	return read(0, &byte, 1) < 0;
}
