/* SPDX-License-Identifier: GPL-2.0 */
/*
 * http2_frames.bpf.h: frame headers, found by sequence number and never by call: docs/design/http2.md, "Frames". So calls
 * that were cut, repeated firings, calls that hold many frames and headers that straddle calls are one case. Payload is
 * jumped over. Of a header 9 bytes are read, of the connection's first bytes as many; nothing else.
 */
#ifndef LATENCYPROBE_HTTP2_FRAMES_BPF_H
#define LATENCYPROBE_HTTP2_FRAMES_BPF_H

#include <bpf/bpf_helpers.h>
#include "exchange_notes.bpf.h"
#include "http2_streams.bpf.h"

#define WALK_STEPS 8192 /* frames of one call or packet: 72 KB of empty ones. More, and the place is lost */
#define TRIES 64	/* of a connection that may be older than we are, in each direction */

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
	if (!lock_connection(c))
		return;
	if (c->told_by >= SEEKING_STREAMS && told_by < SEEKING_STREAMS) {
		c->target_set = 0;
		c->generation = UNDECIDED;
	}
	c->told_by = told_by;
	if (told_by >= SEEKING_STREAMS) {
		c->phase = PHASE_IDLE;
		c->send_owner = SEND_NONE;
		c->previous_used = 0;
		forget_notes(c);
	}
	unlock_connection(c);
}

/* Nothing is known any more of where this direction's frames lie. */
static __noinline void lose(struct frame *f, struct direction *d)
{
	struct http2 *h = f->h;

	d->state = FRAMES_LOST;
	d->have = 0;
	d->ending = 0;
	d->continued = 0;
	h->fresh = 0;
	h->resumed = 1;
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
	return true;
}

/* This frame's end is that of its message, where `s` is followed. */
static __always_inline void note_end(struct frame *f, struct direction *d, struct stream *s)
{
	struct http2 *h = f->h;
	struct stream *oldest;

	if (f->asks)
		s->x.request_until = f->end;
	else
		s->x.response_until = f->end;
	if (!f->out) {
		d->ending = f->id;
		d->ending_seq = f->end;
		return;
	}
	__sync_fetch_and_or(&s->state, STREAM_SENDING);
	if (put_ending(h, f->id, f->end))
		return;
	/* more in one call: the oldest takes the time at which it began */
	oldest = find_stream(h, take_ending(h, f->end));
	if (oldest)
		end_sent(h, f->c, f->tp, oldest, h->call_ns, FLAG_SEND_APPROX);
	put_ending(h, f->id, f->end);
}

/* A stream that the client opens: found, or made unless its answer could not be followed. */
static __always_inline struct stream *ask_stream(struct frame *f, __u64 ready_ns, __u32 flags)
{
	struct http2 *h = f->h;

	if (f->id <= h->last_id || !(f->id & 1))
		return find_stream(h, f->id);
	if (h->resumed && h->last_id && f->id - h->last_id > 2)
		count_unseen(h, f->c, (f->id - h->last_id) / 2 - 1);
	h->resumed = 0;
	h->last_id = f->id;
	if ((f->out ? h->in.state : h->out.state) == FRAMES_LOST) {
		count_unseen(h, f->c, 1);
		return NULL;
	}
	return open_stream(f, ready_ns, flags);
}

/* A frame begins whose place is known; f->type says which. */
static __noinline void take_frame(struct frame *f, struct direction *d)
{
	bool headers = f->type == FRAME_HEADERS, ends = f->flags & END_STREAM,
	     whole = !headers || f->flags & END_HEADERS;
	__u32 end = f->end, flags = 0;
	struct http2 *h = f->h;
	__u64 at_ns = h->call_ns;
	struct stream *s;

	if (f->type != FRAME_DATA && !headers && f->type != FRAME_CONTINUATION && f->type != FRAME_RST_STREAM)
		return;
	if (!f->out) {
		f->end = f->seq + 1;
		at_ns = arrived_ns(f, &flags);
		f->end = end;
	}
	s = headers && f->asks ? ask_stream(f, at_ns, flags) : find_stream(h, f->id);
	if (f->type == FRAME_CONTINUATION) {
		ends = whole = d->continued == f->id && f->flags & END_HEADERS;
		if (ends)
			d->continued = 0;
	} else if (headers) {
		d->continued = ends && !whole ? f->id : 0;
	}
	if (!s)
		return;
	s->x.flags |= flags;
	if (f->type == FRAME_RST_STREAM) {
		reset_stream(f, s, f->out ? f->now_ns : at_ns);
		return;
	}
	if (!f->asks && f->type != FRAME_CONTINUATION)
		answer_stream(f, s, headers, ends, at_ns);
	if (f->asks)
		s->x.request_bytes += end - f->seq;
	else
		s->x.response_bytes += end - f->seq;
	if (ends && whole)
		note_end(f, d, s);
}

/* What a call or a packet shows of a direction. One source: user memory in segments, or an skb. */
struct walk {
	struct frame f;
	struct direction *d;
	struct sk_buff *skb; /* NULL: user memory */
	__u64 segments;	     /* of struct iovec; 0: one, which is known */
	__u64 base;	     /* of the segment that is looked at */
	__u32 left;	     /* segments after it */
	__u32 begin;	     /* sequence numbers: of the first byte that is shown */
	__u32 end;	     /* and behind the last */
	__u32 segment_seq;
	__u32 segment_end;
	__u32 frames;
	bool refused; /* it is no HTTP/2 */
	bool lost;    /* something else was where a frame must begin */
};

extern int bpf_dynptr_from_skb(struct sk_buff *skb, __u64 flags, struct bpf_dynptr *dynptr) __ksym;

/* The bytes of a header that are here: `n` of them into its place. False: they cannot be read. */
static __always_inline bool read_header(struct walk *w, struct direction *d, __u32 n)
{
	__u32 at = d->have & 15;
	struct bpf_dynptr packet;

	n &= 15;
	if (w->skb)
		return !bpf_dynptr_from_skb(w->skb, 0, &packet) &&
		       !bpf_dynptr_read(&d->header[at], n, &packet, d->next - w->segment_seq, 0);
	return !bpf_probe_read_user(&d->header[at], n, (void *)(w->base + (d->next - w->segment_seq)));
}

/* The next segment of the send call. False: there is none. */
static __always_inline bool next_segment(struct walk *w)
{
	struct iovec one;

	if (!w->left || bpf_probe_read_kernel(&one, sizeof(one), (void *)w->segments))
		return false;
	w->left--;
	w->segments += sizeof(one);
	w->base = (__u64)one.iov_base;
	w->segment_seq = w->segment_end;
	w->segment_end += one.iov_len;
	return true;
}

static const __u8 preface[FRAME_HEADER_BYTES] = "PRI * HTT";

/* The header in d->header is whole. False: the walk is over. */
static __always_inline bool take_header(struct walk *w, struct direction *d)
{
	__u32 length = d->header[0] << 16 | d->header[1] << 8 | d->header[2];
	__u32 id = (d->header[5] & 0x7f) << 24 | d->header[6] << 16 | d->header[7] << 8 | d->header[8];
	__u8 type = d->header[3];
	struct frame *f = &w->f;
	bool fits;

	d->have = 0;
	f->seq = d->next - FRAME_HEADER_BYTES;
	if (d->state == FRAMES_PREFACE) {
		fits = !__builtin_memcmp(d->header, preface, 8) && d->header[8] == preface[8];
		d->next = f->seq + PREFACE_BYTES;
		d->state = FRAMES_SETTINGS;
		w->refused = !fits;
		return fits;
	}
	d->next += length;
	fits = is_frame(type, length, id);
	if (d->state == FRAMES_TRIED) {
		w->frames++;
		return fits && type <= FRAME_PRIORITY_UPDATE && !(d->header[5] & 0x80) && !is_before(w->end, d->next);
	}
	if (d->state == FRAMES_SETTINGS) {
		if (!fits || type != FRAME_SETTINGS || d->header[4] & 1) {
			w->refused = true;
			return false;
		}
		d->state = FRAMES_IN_STEP;
		if (f->asks && f->c->told_by == BY_TURNS_SO_FAR)
			hand_over(f->c, BY_STREAMS);
		return true;
	}
	if (!fits) {
		w->lost = true;
		return false;
	}
	f->end = d->next;
	f->id = id;
	f->type = type;
	f->flags = d->header[4];
	take_frame(f, d);
	return true;
}

/* A step is a segment more, or the bytes of one header that lie in it. */
static long step(__u32 index, struct walk *w)
{
	struct direction *d = w->d;
	__u32 n, wanted;

	if (d->ending && !is_before(w->end, d->ending_seq)) {
		struct stream *s = find_stream(w->f.h, d->ending);

		w->f.end = d->ending_seq;
		d->ending = 0;
		if (s)
			end_read(&w->f, s);
	}
	if (!is_before(d->next, w->end))
		return 1;
	if (!is_before(d->next, w->segment_end))
		return !next_segment(w);
	wanted = FRAME_HEADER_BYTES - d->have;
	n = (is_before(w->segment_end, w->end) ? w->segment_end : w->end) - d->next;
	if (n > wanted)
		n = wanted;
	if (!read_header(w, d, n)) {
		w->lost = true;
		return 1;
	}
	d->have += n;
	d->next += n;
	return d->have == FRAME_HEADER_BYTES && !take_header(w, d);
}

/* Walk the frames between w->begin and w->end. */
static __always_inline void walk_frames(struct walk *w)
{
	struct direction *d = w->d;
	struct http2 *h = w->f.h;

	if (d->state == FRAMES_LOST) {
		if (d->tries >= TRIES && w->f.c->told_by == SEEKING_STREAMS) {
			hand_over(w->f.c, BY_TURNS_FOR_GOOD);
			return;
		}
		d->tries++;
		d->state = FRAMES_TRIED;
		d->next = w->begin;
		d->have = 0;
	} else if (is_before(d->next, w->begin)) {
		lose(&w->f, d); /* some bytes were not shown */
		if (w->f.c->told_by == BY_TURNS_SO_FAR)
			hand_over(w->f.c, SEEKING_STREAMS);
		return;
	}
	bpf_loop(WALK_STEPS, step, w, 0);
	if (d->state == FRAMES_TRIED) {
		bool found = w->frames && d->next == w->end && !d->have && !w->lost;

		d->state = found ? FRAMES_IN_STEP : FRAMES_LOST;
		d->have = 0;
	} else if (w->refused || w->lost || is_before(d->next, w->end)) {
		lose(&w->f, d);
		if (w->refused)
			hand_over(w->f.c, BY_TURNS_FOR_GOOD);
		else if (w->f.c->told_by == BY_TURNS_SO_FAR)
			hand_over(w->f.c, SEEKING_STREAMS);
	}
	if (w->f.c->told_by == SEEKING_STREAMS && h->in.state == FRAMES_IN_STEP && h->out.state == FRAMES_IN_STEP)
		hand_over(w->f.c, BY_STREAMS);
}

#endif
