/* SPDX-License-Identifier: GPL-2.0 */
/*
 * http2_frames.bpf.h: what a frame is whose place is known, and what it does to its stream; and what becomes of streams
 * when places are lost: docs/design/http2.md, "Frames".
 */
#ifndef LATENCYPROBE_HTTP2_FRAMES_BPF_H
#define LATENCYPROBE_HTTP2_FRAMES_BPF_H

#include <bpf/bpf_helpers.h>
#include "exchange_notes.bpf.h"
#include "http2_streams.bpf.h"

/* RFC 9113, section 6; RFC 9218 */
enum frame_type {
	FRAME_DATA = 0,
	FRAME_HEADERS = 1,
	FRAME_PRIORITY = 2,
	FRAME_RST_STREAM = 3,
	FRAME_SETTINGS = 4,
	FRAME_PUSH_PROMISE = 5,
	FRAME_PING = 6,
	FRAME_GOAWAY = 7,
	FRAME_WINDOW_UPDATE = 8,
	FRAME_CONTINUATION = 9,
	FRAME_PRIORITY_UPDATE = 16,
};

#define END_STREAM 0x1
#define END_HEADERS 0x4

/* Hand a connection over: to the streams, or back to the turns, which then begin anew in its middle. */
static __noinline void hand_over(struct connection *c, __u8 told_by)
{
	__u32 waits = 0, set;

	if (!lock_connection(c))
		return;
	set = c->target_set;
	if (c->told_by >= SEEKING_STREAMS && told_by < SEEKING_STREAMS) {
		c->target_set = 0;
		c->generation = UNDECIDED;
	}
	c->told_by = told_by;
	if (told_by >= SEEKING_STREAMS) {
		c->phase = PHASE_IDLE;
		c->send_owner = SEND_NONE;
		waits = c->previous_used; /* ended, and its send call has not returned */
		c->previous_used = 0;
		forget_notes(c);
	}
	unlock_connection(c);
	if (waits)
		count_unaccounted(set, waits);
}

/* Nothing is known any more of where this direction's frames lie. */
static __noinline void lose(struct seen *f, struct direction *d)
{
	struct http2 *h = f->h;

	d->state = FRAMES_LOST;
	d->have = 0;
	d->ending = 0;
	d->continued = 0;
	h->fresh = 0;
	if (asks(f)) {
		h->resumed = 1;
		if (f->out && is_before(f->tp->write_seq, h->asked_until))
			h->asked_until = f->tp->write_seq; /* they were shown, and not written */
	}
	break_all(h, f->c, f->tp, BROKEN_BY(OUTCOME_OK, EXCLUDED_OUT_OF_STEP), f->now_ns);
}

/* One that every sender of HTTP/2 may send. */
static __always_inline bool is_frame(__u8 type, __u32 length, __u32 id)
{
	switch (type) {
	case FRAME_DATA:
	case FRAME_HEADERS:
	case FRAME_CONTINUATION:
	case FRAME_PUSH_PROMISE:
		return id;
	case FRAME_PRIORITY:
		return id && length == 5;
	case FRAME_RST_STREAM:
		return id && length == 4;
	case FRAME_SETTINGS:
		return !id && length % 6 == 0;
	case FRAME_PING:
		return !id && length == 8;
	case FRAME_GOAWAY:
		return !id && length >= 8;
	case FRAME_WINDOW_UPDATE:
		return length == 4;
	}
	return length <= EXTENSION_BYTES;
}

/* This frame's end is that of its message, where `s` is followed. A peer may say so again: a message ends once. */
static __always_inline void note_end(struct seen *f, struct direction *d, struct stream *s)
{
	__u32 ended = asks(f) ? STREAM_REQUEST_ENDED : STREAM_ANSWER_ENDED;
	struct http2 *h = f->h;

	if (s->state & (f->out ? ended | STREAM_SENDING : ended))
		return;
	if (asks(f))
		s->x.request_until = h->frame.end;
	else
		s->x.response_until = h->frame.end;
	if (!f->out) {
		d->ending = h->frame.id;
		d->ending_seq = h->frame.end;
		return;
	}
	__sync_fetch_and_or(&s->state, STREAM_SENDING);
	if (put_ending(h, h->frame.id, h->frame.end))
		return;
	/* more in one call: the oldest takes the time at which it began */
	end_next_sent(h, f->c, f->tp, h->frame.end, h->call_ns, FLAG_SEND_APPROX);
	put_ending(h, h->frame.id, h->frame.end);
}

/* Of `gap` streams, those that fit into what the client has said unseen until `seq`: it gives ids in order, but may skip any. */
static __always_inline __u32 unseen(const struct http2 *h, __u32 gap, __u32 seq)
{
	__u32 fit = (seq - h->asked_until) / LEAST_ASK_BYTES;

	return gap < fit ? gap : fit;
}

/*
 * The server answers a stream that is not known: it may have opened unseen, with others before it. Of what the client has
 * said, only as much is used up as these take at least: others that it asked for may be answered later.
 */
static __noinline void answer_unseen(struct seen *f)
{
	struct http2 *h = f->h;
	__u32 asked_until = f->out ? f->tp->copied_seq : f->tp->write_seq, n;

	if (!h->last_id || h->frame.id <= h->last_id || !(h->frame.id & 1))
		return;
	if (!h->resumed && !passed_unseen(f->out ? &h->in : &h->out, asked_until))
		return;
	n = unseen(h, (h->frame.id - h->last_id) / 2, asked_until);
	count_unseen(h, f->c, n);
	h->last_id = h->frame.id;
	h->asked_until += n * LEAST_ASK_BYTES;
}

/* A stream that the client opens: found, or made unless its answer could not be followed. */
static __always_inline struct stream *ask_stream(struct seen *f, __u64 ready_ns)
{
	struct http2 *h = f->h;

	if (h->frame.id <= h->last_id || !(h->frame.id & 1))
		return find_stream(h, h->frame.id);
	if (h->resumed && h->last_id && h->frame.id - h->last_id > 2)
		count_unseen(h, f->c, unseen(h, (h->frame.id - h->last_id) / 2 - 1, h->frame.seq));
	h->resumed = 0;
	h->last_id = h->frame.id;
	h->asked_until = h->frame.end;
	if ((f->out ? h->in.state : h->out.state) == FRAMES_LOST) {
		count_unseen(h, f->c, 1);
		return NULL;
	}
	return open_stream(f, ready_ns);
}

/* What matters of a frame. */
enum taken {
	TAKEN_HEADERS = 1 << 0,
	TAKEN_DATA = 1 << 1,
	TAKEN_CONTINUATION = 1 << 2,
	TAKEN_RESET = 1 << 3,
	TAKEN_END = 1 << 4, /* it is the last of its message */
};

static __always_inline bool taken(const struct http2 *h, __u8 what)
{
	return *(volatile __u8 *)&h->taken & what;
}

/* Which of them it is; 0: none. HEADERS that end their message go on in CONTINUATION until that is whole. */
static __always_inline __u8 taken_of(const struct seen *f, struct direction *d)
{
	const struct frame *frame = &f->h->frame;
	bool ends = frame->flags & END_STREAM, whole = frame->flags & END_HEADERS;

	switch (frame->type) {
	case FRAME_DATA:
		return ends ? TAKEN_DATA | TAKEN_END : TAKEN_DATA;
	case FRAME_HEADERS:
		d->continued = ends && !whole ? frame->id : 0;
		return ends && whole ? TAKEN_HEADERS | TAKEN_END : TAKEN_HEADERS;
	case FRAME_CONTINUATION:
		return whole && d->continued == frame->id ? TAKEN_CONTINUATION | TAKEN_END : TAKEN_CONTINUATION;
	case FRAME_RST_STREAM:
		return TAKEN_RESET;
	}
	return 0;
}

/* It says that its message ends, which CONTINUATION may still have to do: trailers, and no HEADERS of another answer. */
static __always_inline bool ends_stream(const struct http2 *h)
{
	return *(volatile __u8 *)&h->frame.flags & END_STREAM;
}

/* A frame begins whose place is known: h->frame. */
static __noinline void take_frame(struct seen *f, struct direction *d)
{
	struct http2 *h = f->h;
	__u32 end = h->frame.end;
	__u64 at_ns = h->call_ns, before_ns = 0;
	struct stream *s;

	h->taken = taken_of(f, d);
	if (!taken(h, 0xff))
		return;
	if (!asks(f) && h->answered == h->frame.id && h->answered_until == h->frame.seq)
		before_ns = f->out ? h->returned_ns : arrived_ns(f, h->frame.seq);
	if (!f->out)
		at_ns = arrived_ns(f, h->frame.seq + 1);
	s = taken(h, TAKEN_HEADERS) && asks(f) ? ask_stream(f, at_ns) : find_stream(h, h->frame.id);
	if (!s) {
		if (taken(h, TAKEN_HEADERS) && !asks(f))
			answer_unseen(f);
		return;
	}
	if (!f->out && h->approx)
		s->x.flags |= FLAG_READY_APPROX;
	if (taken(h, TAKEN_RESET)) {
		reset_stream(f, s, f->out ? f->now_ns : at_ns);
		return;
	}
	if (asks(f)) {
		s->x.request_bytes += end - h->frame.seq;
	} else {
		if (taken(h, TAKEN_HEADERS | TAKEN_DATA))
			answer_stream(f, s, taken(h, TAKEN_HEADERS), ends_stream(h), at_ns, before_ns);
		h->answered = h->frame.id;
		h->answered_until = end;
		s->x.response_bytes += end - h->frame.seq;
	}
	if (taken(h, TAKEN_END))
		note_end(f, d, s);
}

#endif
