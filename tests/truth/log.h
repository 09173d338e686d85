/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log.h: the workload generator's log: one record per RPC and side, written as a NumPy file (`numpy.load` reads it).
 * The field list below is the only definition; the file's header carries it. Stamps: ns of CLOCK_BOOTTIME.
 */
#ifndef TRUTH_LOG_H
#define TRUTH_LOG_H

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * Of the first and of the last send call of the message that this side wrote, and of the first and the last receive
 * call of the one that it read: the clock right before (*_begin_ns, send_start_ns) and right after it. readable_ns: by
 * then `readable` bytes of the message had come. arrival_*: the kernel's receive stamp (SO_TIMESTAMPING, taken before
 * TCP sees the segment) of the newest segment in the first and the last receive call, not later than it was taken;
 * 0 = none. role: 1 client, 2 server. ordinal: of the RPC on its connection. cookie: SO_COOKIE of this side's socket.
 */
#define LOG_FIELDS(F)                                                                                                  \
	F(uint64_t, "<u8", rpc)                                                                                        \
	F(uint64_t, "<u8", cookie)                                                                                     \
	F(int64_t, "<i8", send_start_ns)                                                                               \
	F(int64_t, "<i8", first_sent_ns)                                                                               \
	F(int64_t, "<i8", send_last_begin_ns)                                                                          \
	F(int64_t, "<i8", send_end_ns)                                                                                 \
	F(int64_t, "<i8", readable_ns)                                                                                 \
	F(uint64_t, "<u8", readable)                                                                                   \
	F(int64_t, "<i8", read_first_begin_ns)                                                                         \
	F(int64_t, "<i8", read_first_ns)                                                                               \
	F(int64_t, "<i8", read_last_begin_ns)                                                                          \
	F(int64_t, "<i8", read_last_ns)                                                                                \
	F(int64_t, "<i8", arrival_first_ns)                                                                            \
	F(int64_t, "<i8", arrival_last_ns)                                                                             \
	F(uint32_t, "<u4", request_bytes)                                                                              \
	F(uint32_t, "<u4", response_bytes)                                                                             \
	F(uint32_t, "<u4", ordinal)                                                                                    \
	F(uint32_t, "<u4", send_calls)                                                                                 \
	F(uint32_t, "<u4", recv_calls)                                                                                 \
	F(uint32_t, "<u4", cause)                                                                                      \
	F(uint32_t, "<u4", role)                                                                                       \
	F(uint16_t, "<u2", local_port)                                                                                 \
	F(uint16_t, "<u2", peer_port)

#define LOG_MEMBER(type, descr, name) type name;
#define LOG_DESCR(type, descr, name) "('" #name "','" descr "'),"

struct record {
	LOG_FIELDS(LOG_MEMBER)
};
_Static_assert(sizeof(struct record) == 144, "no hidden padding: the file's description has none");

enum { LOG_HEADER = 1024 }; /* one page of the format: magic, length, description, padded */

static FILE *log_file;
static uint64_t log_count;
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;

/* Write the NumPy header (format 1.0); called again at the end with the final count. */
static void log_header(void)
{
	char head[LOG_HEADER];
	uint16_t size = LOG_HEADER - 10;

	memset(head, ' ', sizeof(head));
	memcpy(head, "\x93NUMPY\x01\x00", 8);
	memcpy(head + 8, &size, 2);
	int n = snprintf(head + 10, size, "{'descr':[" LOG_FIELDS(LOG_DESCR) "],'fortran_order':False,'shape':(%llu,)}",
			 (unsigned long long)log_count);
	head[10 + n] = ' ';
	head[LOG_HEADER - 1] = '\n';
	rewind(log_file);
	fwrite(head, sizeof(head), 1, log_file);
}

static void log_open(const char *path)
{
	if (!path)
		return;
	log_file = fopen(path, "wb");
	if (!log_file) {
		perror(path);
		exit(1);
	}
	setvbuf(log_file, NULL, _IOFBF, 1 << 20);
	log_header();
}

static void log_add(const struct record *r)
{
	pthread_mutex_lock(&log_lock);
	log_count++;
	if (log_file)
		fwrite(r, sizeof(*r), 1, log_file);
	pthread_mutex_unlock(&log_lock);
}

static void log_close(void)
{
	if (!log_file)
		return;
	log_header();
	if (fclose(log_file)) {
		perror("log");
		exit(1);
	}
}

#endif
