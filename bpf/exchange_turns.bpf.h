/* SPDX-License-Identifier: GPL-2.0 */
/*
 * exchange_turns.bpf.h: what bytes of one side do to the open turn of a connection: docs/design/measurement.md, "State
 * machine", as functions. Whoever begins after silence has the initiative.
 */
#ifndef LATENCYPROBE_EXCHANGE_TURNS_BPF_H
#define LATENCYPROBE_EXCHANGE_TURNS_BPF_H

#include <bpf/bpf_helpers.h>
#include "events.h"
#include "kernel.h"
#include "maps.bpf.h"
#include "storage.bpf.h"

/*
 * What a hook read from the socket before it took the lock. `received`: rcv_nxt without the peer's FIN. What only
 * beginnings and ends of exchanges need is read from the socket there.
 */
struct view {
	const struct tcp_sock *tp;
	__u64 now_ns;
	__u32 received;
	__u32 copied;
	__u32 written;
	__u32 acked; /* snd_una: what the peer had of ours when it sent what it sent last */
	__u32 flags; /* enum exchange_flags found on the way */
};

/* With the next phase: the open turn ends before it, and another begins. */
#define ENDS 0x80

/* Round trips, in an eighth of a microsecond as srtt_us has them, that a pause has at least: 2, in ns. */
#define TWO_ROUND_TRIPS_NS(srtt_us) ((__u64)(srtt_us) * 250)

/* What shows that bytes were under way though none moved: segments sent again, or received out of order. */
static __always_inline __u32 disturbances(const struct tcp_sock *tp)
{
	return tp->total_retrans + tp->rcv_ooopack;
}

/* Segments sent again since there were `before`; 0 once tcp_disconnect() has set their number back. */
static __always_inline __u32 resent_since(const struct tcp_sock *tp, __u32 before)
{
	__s32 more = tp->total_retrans - before;

	return more & ~(more >> 31);
}

static __always_inline void bytes_move(struct connection *c, const struct view *v)
{
	c->moved_ns = v->now_ns;
	c->last_ns = v->now_ns;
	c->disturbed = disturbances(v->tp);
}

/* What was lost is sent again within it: a connection that is silent for longer has fallen silent. */
#define DISTURBED_NS 60000000000LL

/* No byte has moved for a pause of the target, or two round trips, and none was under way. */
static __always_inline bool is_silent(const struct connection *c, const struct view *v)
{
	__s64 quiet_ns = v->now_ns - c->moved_ns;

	if (quiet_ns < (__s64)c->pause_ns || v->copied != c->read_seq) /* a reader is at it: the window was closed */
		return false;
	return quiet_ns >= (__s64)TWO_ROUND_TRIPS_NS(v->tp->srtt_us) && (__s32)(v->acked - c->out_seq) >= 0 &&
	       !((c->disturbed ^ disturbances(v->tp)) & (__u32)((quiet_ns - DISTURBED_NS) >> 63));
}

/* A pause that is too short to be silence, and long within one message: a 16th of the target's. */
#define LULL_NS(pause_ns) ((pause_ns) >> 4)
/*
 * A request that has so many of the target's pauses in lulls, and fewer bytes than come in that time at 61 KB/s, is not
 * taken for one message any more: an upload is, unless its network is slower than that.
 */
#define LULLS 8
#define DRIBBLED(lulls_ns) ((lulls_ns) >> 14)

/* 1 if they are equal, without a branch, which the verifier would follow both ways. */
static __always_inline __u64 equal(__u32 a, __u32 b)
{
	return ((__u64)(a ^ b) - 1) >> 63;
}

/* Bytes of the client move on. Add the lull before them, if their request is open and none of it was under way. */
static __always_inline void count_lull(struct connection *c, const struct view *v)
{
	__u64 quiet_ns = v->now_ns - c->moved_ns;
	__u64 lulled = equal(c->phase, PHASE_REQUEST) & equal(v->copied, c->read_seq) &
		       equal(c->disturbed, disturbances(v->tp)) & ~((__u64)(v->acked - c->out_seq) >> 31) &
		       ~((quiet_ns - LULL_NS(c->pause_ns)) >> 63) & ((quiet_ns - c->pause_ns) >> 63);

	c->lulls_ns += quiet_ns & (0 - lulled);
}

/* A connection that falls silent at its server's side, or does not alternate in step, does not resume. */
static __always_inline void keep_resuming(struct connection *c, bool doubtful)
{
	c->resuming &= (__u32)doubtful - 1;
}

/* The connection has alternated long enough since its response was cut. */
static __always_inline bool is_resumed(const struct connection *c)
{
	return c->phase == PHASE_PUSH && c->resuming == 1;
}

/*
 * Bytes of the client. `overtake`: they left before the answer was whole, as far as this end can tell; `read`: the
 * server has read what came before them, as far as this end can tell.
 */
static __always_inline __u8 after_request_bytes(const struct connection *c, bool silent, bool overtake, bool read)
{
	if (c->phase == PHASE_REQUEST)
		return silent && read ? ENDS | PHASE_REQUEST : PHASE_REQUEST;
	if (c->half_closed)
		return ENDS | PHASE_IDLE; /* nobody will answer them */
	switch (c->phase) {
	case PHASE_RESPONSE:
		return overtake ? PHASE_LATE : ENDS | PHASE_REQUEST;
	case PHASE_LATE:
		return silent && !overtake ? ENDS | PHASE_REQUEST : PHASE_LATE;
	case PHASE_PUSH:
	case PHASE_REPLY:
		return silent || !c->talked || is_resumed(c) ? ENDS | PHASE_REQUEST : PHASE_REPLY;
	}
	return ENDS | PHASE_REQUEST;
}

static __always_inline __u8 after_response_bytes(const struct connection *c, bool silent)
{
	switch (c->phase) {
	case PHASE_REQUEST:
		return PHASE_RESPONSE;
	case PHASE_RESPONSE:
		return silent ? ENDS | PHASE_PUSH : PHASE_RESPONSE;
	case PHASE_LATE:
		return ENDS | PHASE_RESPONSE;
	case PHASE_PUSH:
		return silent && c->talked ? ENDS | PHASE_PUSH : PHASE_PUSH;
	case PHASE_REPLY:
		return ENDS | PHASE_PUSH;
	}
	return ENDS | (c->first_excluded ? PHASE_RESPONSE : PHASE_PUSH); /* its request came before we were there */
}

#endif
