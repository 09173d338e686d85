// Prints the addresses of its functions and waits for the end of its input.
#include <stdio.h>
#include <unistd.h>

__attribute__((noinline)) static long inner_function(long n)
{
	return n * 3 + 1;
}

__attribute__((noinline)) long outer_function(long n)
{
	return inner_function(n) + inner_function(n + 1);
}

int main(void)
{
	char byte;
	printf("%lx\n%lx\n%lx\n", (long)inner_function, (long)outer_function, (long)main);
	fflush(stdout);
	return (int)(outer_function(read(0, &byte, 1)) & 1);
}
