/* SPDX-License-Identifier: GPL-2.0 */
/*
 * exchange_notes.bpf.h: the ordinary return of a send or a receive call, noted without a lock, and what becomes of notes:
 * whoever takes the lock next settles them first, so that nothing is judged without them.
 *
 * A writer of notes can be interrupted by who settles them, or run beside it. Each note is valid by one word that is
 * written last (x86 keeps the order of stores) and names what it was meant for; one that came too late for that is void.
 */
#ifndef LATENCYPROBE_EXCHANGE_NOTES_BPF_H
#define LATENCYPROBE_EXCHANGE_NOTES_BPF_H

#include "exchange_account.bpf.h"
#include "exchange_sending.bpf.h"

/* The call that was seen to begin wrote all that is written, for the open exchange. */
static __always_inline bool returns_as_expected(const struct connection *c, __u32 tid, __u32 written)
{
	return READ_ONCE(c->send_owner) == SEND_CURRENT && READ_ONCE(c->send_tid) == tid &&
	       (__s32)(written - READ_ONCE(c->send_until)) <= 0;
}

static __always_inline void note_return(struct connection *c, __u32 tid, __u32 written, __u64 now_ns)
{
	WRITE_ONCE(c->notes.returned_tid, tid);
	WRITE_ONCE(c->notes.written, written);
	WRITE_ONCE(c->notes.returned_ns, now_ns);
}

/* Up to which sequence number reads are known. */
static __always_inline __u32 known_read_seq(const struct connection *c)
{
	return READ_ONCE(c->notes.reads) ? READ_ONCE(c->notes.read_seq) : READ_ONCE(c->read_seq);
}

/* A send call is in progress that is not known to have returned. */
static __always_inline bool is_sending(const struct connection *c)
{
	return READ_ONCE(c->send_owner) != SEND_NONE && !READ_ONCE(c->notes.returned_ns);
}

static __always_inline void note_read(struct connection *c, __u32 copied, __u64 pid_tgid, __u64 now_ns)
{
	if (!READ_ONCE(c->notes.read_first_ns))
		WRITE_ONCE(c->notes.read_first_ns, now_ns);
	WRITE_ONCE(c->notes.read_last_ns, now_ns);
	WRITE_ONCE(c->notes.reader, pid_tgid);
	WRITE_ONCE(c->notes.read_seq, copied);
	__sync_fetch_and_add(&c->notes.reads, 1);
}

static __always_inline void settle_reads(struct connection *c)
{
	__u32 reads = READ_ONCE(c->notes.reads);
	struct reading reading = {
		.first_ns = READ_ONCE(c->notes.read_first_ns),
		.last_ns = READ_ONCE(c->notes.read_last_ns),
		.pid_tgid = READ_ONCE(c->notes.reader),
		.copied = READ_ONCE(c->notes.read_seq),
		.calls = reads,
	};

	if (!reads)
		return;
	WRITE_ONCE(c->notes.read_first_ns, 0);
	__sync_fetch_and_add(&c->notes.reads, -reads);
	if (!reading.first_ns) /* its writer found the note before it, which was settled then */
		reading.first_ns = reading.last_ns;
	take(c, &reading);
}

/* True: as finish_send(). */
static __always_inline bool settle_return(struct connection *c)
{
	__u64 returned_ns = READ_ONCE(c->notes.returned_ns);

	if (!returned_ns)
		return false;
	WRITE_ONCE(c->notes.returned_ns, 0);
	if (c->send_owner == SEND_NONE || c->notes.returned_tid != c->send_tid)
		return false;
	advance_out(c, c->notes.written);
	move_at(c, returned_ns);
	return finish_send(c, returned_ns, true, 0);
}

/* Lock the connection, all notes settled. False: its lock is not to be had. */
static __always_inline bool lock_settled(struct connection *c)
{
	if (!lock_connection(c) || !publish(c, settle_return(c)))
		return false;
	settle_reads(c);
	return true;
}

static __always_inline void forget_notes(struct connection *c)
{
	c->notes.returned_ns = 0;
	c->notes.read_first_ns = 0;
	c->notes.reads = 0;
}

#endif
