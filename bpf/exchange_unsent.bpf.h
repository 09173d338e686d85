/* SPDX-License-Identifier: GPL-2.0 */
/*
 * exchange_unsent.bpf.h: bytes that the application has written and the kernel has not sent, docs/design/evidence.md,
 * "Bytes that waited to be sent". Reached only when a send call returns and leaves some, and when that exchange ends.
 * Its two functions are verified once each: they take numbers, and read the socket by its address.
 */
#ifndef LATENCYPROBE_EXCHANGE_UNSENT_BPF_H
#define LATENCYPROBE_EXCHANGE_UNSENT_BPF_H

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "events.h"
#include "kernel.h"
#include "storage.bpf.h"

/* include/net/tcp.h */
#define TCP_NAGLE_CORK 2
#define TCP_NAGLE_PUSH 4

#ifdef CONNECTIONS_IN_HASH /* kernels that take no pointers in such functions: nothing is told, docs/limits.md */

static __always_inline void note_unsent(struct connection *c, const struct tcp_sock *tp, __u32 written)
{
}

#else

/*
 * Why the kernel keeps what lies between snd_nxt and `written`: what its own tests say of the first segment there
 * (net/ipv4/tcp_output.c, tcp_write_xmit), in its order but for pacing: that timer runs out before an acknowledgement
 * comes. UNSENT_NONE: it is sent by now.
 */
__noinline int why_unsent(__u64 address, __u32 written)
{
	const struct tcp_sock *tp = (const struct tcp_sock *)address;
	__u32 next = BPF_CORE_READ(tp, snd_nxt), acked = BPF_CORE_READ(tp, snd_una), unsent = written - next;
	__u32 mss = BPF_CORE_READ(tp, mss_cache), segment = unsent < mss ? unsent : mss;
	__u32 packets_out = BPF_CORE_READ(tp, packets_out), small = BPF_CORE_READ(tp, snd_sml);
	__u32 gone = BPF_CORE_READ(tp, sacked_out) + BPF_CORE_READ(tp, lost_out);
	__u32 in_flight = packets_out - gone + BPF_CORE_READ(tp, retrans_out), cwnd = BPF_CORE_READ(tp, snd_cwnd);
	__u8 nonagle = BPF_CORE_READ_BITFIELD_PROBED(tp, nonagle);
	__s32 window = acked + BPF_CORE_READ(tp, snd_wnd) - next;
	bool paced = BPF_CORE_READ(tp, tcp_wstamp_ns) > BPF_CORE_READ(tp, tcp_clock_cache);
	bool more = BPF_CORE_READ(tp, pushed_seq) != written; /* MSG_MORE: tcp_push() has marked nothing */

	if ((__s32)unsent <= 0 || next != BPF_CORE_READ(tp, snd_nxt))
		return UNSENT_NONE;
	if (in_flight >= cwnd)
		return UNSENT_CWND;
	if (window < (__s32)segment)
		return UNSENT_WINDOW;
	if (unsent < mss && !(nonagle & TCP_NAGLE_PUSH)) {
		if (nonagle & TCP_NAGLE_CORK || more)
			return UNSENT_CORK;
		/* Minshall: a small segment is under way */
		if (!nonagle && packets_out && (__s32)(small - acked) > 0 && (__s32)(small - next) <= 0)
			return UNSENT_NAGLE;
	}
	/* room for a part of it, which tcp_tso_should_defer() keeps back until there is more */
	if (!paced && (__u64)window < unsent && (__u64)window <= (__u64)(cwnd - in_flight) * mss)
		return UNSENT_WINDOW;
	if (!paced && (__u64)(cwnd - in_flight) * mss < unsent)
		return UNSENT_CWND;
	return UNSENT_PACING;
}

/*
 * A send call returned and left bytes behind; written up to `written`. The socket is not locked, and the exchange may end
 * beside us: `reason` makes the note valid, and is written last.
 */
static __always_inline void note_unsent(struct connection *c, const struct tcp_sock *tp, __u32 written)
{
	struct unsent *note = &c->unsent;
	__u32 message = c->current.role == ROLE_SERVER ? c->current.response_seq : c->current.request_seq;
	__u32 bytes = written - tp->snd_nxt, reason;

	WRITE_ONCE(note->tcp_sock, (__u64)tp);
	reason = why_unsent(READ_ONCE(note->tcp_sock), written); /* from memory: a number, and no pointer */
	if (!reason)
		return;
	if (note->reason && note->message == message && note->bytes > bytes)
		bytes = note->bytes;
	WRITE_ONCE(note->reason, UNSENT_NONE);
	WRITE_ONCE(note->at_ns, bpf_ktime_get_ns());
	WRITE_ONCE(note->message, message);
	WRITE_ONCE(note->written, written);
	WRITE_ONCE(note->bytes, bytes);
	WRITE_ONCE(note->reason, reason);
}

/*
 * What a note says of the exchange that has ended: nothing, unless it was left by the last send call of its message.
 * When the last byte left is told by RACK, which keeps the time at which the segment was sent that was acknowledged and
 * had been sent last.
 */
__noinline int tell_unsent(struct exchange *x, struct unsent *note)
{
	const struct tcp_sock *tp;
	__s64 held_ns;
	__u32 end;

	if (!x || !note)
		return 0;
	tp = (const struct tcp_sock *)note->tcp_sock;
	if (x->role == ROLE_SERVER)
		end = x->response_seq + (__u32)x->response_bytes;
	else
		end = x->request_seq + (__u32)x->request_bytes;
	if (note->written != end) {
		if ((__s32)(note->written - end) < 0)
			note->reason = UNSENT_NONE; /* a later call had all of it sent */
		return 0;
	}
	if (BPF_CORE_READ(tp, rack.end_seq) == end) {
		held_ns = BPF_CORE_READ(tp, rack.mstamp) * 1000 - note->at_ns;
		x->held_bound = x->retransmits ? HELD_AT_MOST : HELD_EXACT;
	} else {
		held_ns = bpf_ktime_get_ns() - note->at_ns;
		x->held_bound = (__s32)(BPF_CORE_READ(tp, snd_nxt) - end) < 0 ? HELD_AT_LEAST : HELD_AT_MOST;
	}
	if (held_ns > 0) {
		x->held_ns = held_ns;
		x->unsent_bytes = note->bytes;
		x->unsent_reason = note->reason;
	} else {
		x->held_bound = HELD_EXACT;
	}
	note->reason = UNSENT_NONE;
	return 0;
}

#endif

#endif
