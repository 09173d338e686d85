/* SPDX-License-Identifier: Apache-2.0 */
/* common.h: what the loads of the bench share. */
#ifndef LATENCYPROBE_BENCH_COMMON_H
#define LATENCYPROBE_BENCH_COMMON_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static inline void need(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		exit(1);
	}
}

static inline int64_t clock_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static inline int64_t now_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

#endif
