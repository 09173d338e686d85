/* SPDX-License-Identifier: GPL-2.0 */
/*
 * http2_walk.bpf.h: from one frame header to the next, through user memory or a packet: docs/design/http2.md, "Frames".
 * By sequence number and never by call, so calls that were cut, repeated firings, calls that hold many frames and headers
 * that straddle calls are one case. Payload is jumped over. Of a header 9 bytes are read, of the connection's first bytes
 * as many; nothing else.
 */
#ifndef LATENCYPROBE_HTTP2_WALK_BPF_H
#define LATENCYPROBE_HTTP2_WALK_BPF_H

#include <bpf/bpf_helpers.h>
#include "http2_frames.bpf.h"

#define WALK_STEPS 8192 /* frames of one call or packet: 72 KB of empty ones. More, and the place is lost */
#define TRIES 64	/* of a connection that may be older than we are, in both directions */

/* What a call or a packet shows of a direction. One source: user memory in segments, or an skb. */
struct walk {
	struct seen f;
	struct direction *d;
	struct sk_buff *skb; /* NULL: user memory */
	__u64 segments;	     /* of struct iovec; 0: one, which is known */
	__u64 base;	     /* of the segment that is looked at */
	__u32 left;	     /* segments after it */
	__u32 begin;	     /* sequence numbers: of the first byte that is shown */
	__u32 end;	     /* and behind the last */
	__u32 segment_seq;
	__u32 segment_end;
	bool again; /* a header that was seen is looked at again, and was: */
	__u8 seen[FRAME_HEADER_BYTES];
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

static __always_inline __u32 payload_bytes(const struct direction *d)
{
	return d->header[0] << 16 | d->header[1] << 8 | d->header[2];
}

/*
 * A send call that was cut had shown frames that were not written, up to d->next. The rest comes again, but the sender may
 * put other frames before some of it (nginx does: an answer that begins, the ACK of a PING), and all behind them has moved.
 * So the last header must be there again.
 */
static __always_inline void look_again(struct walk *w, struct direction *d)
{
	__u32 seq = d->next - payload_bytes(d) - FRAME_HEADER_BYTES;

	if (w->skb || d->state != FRAMES_IN_STEP || d->have || is_before(seq, w->begin))
		return;
	if (is_before(w->end, seq + FRAME_HEADER_BYTES))
		return; /* at a later call */
	__builtin_memcpy(w->seen, d->header, FRAME_HEADER_BYTES);
	w->again = true;
	d->next = seq;
}

/* The header in d->header is whole. False: the walk is over. */
static __always_inline bool take_header(struct walk *w, struct direction *d)
{
	__u32 length = payload_bytes(d);
	__u32 id = (d->header[5] & 0x7f) << 24 | d->header[6] << 16 | d->header[7] << 8 | d->header[8];
	__u8 type = d->header[3];
	struct seen *f = &w->f;
	struct http2 *h = f->h;
	bool fits;

	d->have = 0;
	if (!w->skb && w->again) { /* `skb` for the verifier, which knows it */
		w->again = false;
		d->next += length;
		h->lost = __builtin_memcmp(d->header, w->seen, FRAME_HEADER_BYTES) != 0;
		return !h->lost;
	}
	h->frame.seq = d->next - FRAME_HEADER_BYTES;
	if (d->state == FRAMES_PREFACE) {
		fits = !__builtin_memcmp(d->header, preface, 8) && d->header[8] == preface[8];
		d->next = h->frame.seq + PREFACE_BYTES;
		d->state = FRAMES_SETTINGS;
		h->refused = !fits;
		/* before the client's SETTINGS: the server's may come first, and would be an answer to the preface */
		if (fits && f->c->told_by == BY_TURNS_SO_FAR)
			hand_over(f->c, BY_STREAMS);
		return fits;
	}
	d->next += length;
	fits = is_frame(type, length, id);
	if (d->state == FRAMES_TRIED) {
		h->tried++;
		return fits && type <= FRAME_PRIORITY_UPDATE && !(d->header[5] & 0x80) && !is_before(w->end, d->next);
	}
	if (d->state == FRAMES_SETTINGS) {
		if (!fits || type != FRAME_SETTINGS || d->header[4] & 1) {
			h->refused = true;
			return false;
		}
		d->state = FRAMES_IN_STEP;
		return true;
	}
	if (!fits) {
		h->lost = true;
		return false;
	}
	h->frame.end = d->next;
	h->frame.id = id;
	h->frame.type = type;
	h->frame.flags = d->header[4];
	take_frame(f, d);
	return true;
}

/* A step is the end of a message that is read, a segment more, or the bytes of one header that lie in it. */
static long step(__u32 index, struct walk *w)
{
	struct direction *d = w->d;
	__u32 n, wanted;

	if (d->ending && !is_before(w->end, d->ending_seq)) {
		end_read(&w->f, w->begin);
		return 0;
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
		w->f.h->lost = true;
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
		const struct direction *other = w->skb ? &h->out : &h->in;

		/* Uploads are no whole frames for thousands of packets; then what comes back must be none either. */
		if (d->tries >= TRIES && other->tries >= TRIES && other->state == FRAMES_LOST &&
		    w->f.c->told_by == SEEKING_STREAMS) {
			hand_over(w->f.c, BY_TURNS_FOR_GOOD);
			return;
		}
		if (w->skb) { /* the whole of it, from its first byte, however little of it is read at a time */
			if (w->begin != w->segment_seq)
				return;
			w->end = w->segment_end;
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
	look_again(w, d);
	h->tried = 0;
	h->refused = false;
	h->lost = false;
	bpf_loop(WALK_STEPS, step, w, 0);
	if (d->state == FRAMES_TRIED) {
		bool found = h->tried && d->next == w->end && !d->have && !h->lost;

		d->state = found ? FRAMES_IN_STEP : FRAMES_LOST;
		d->have = 0;
	} else if (h->refused || h->lost || is_before(d->next, w->end)) {
		lose(&w->f, d);
		if (h->refused)
			hand_over(w->f.c, BY_TURNS_FOR_GOOD);
		else if (w->f.c->told_by == BY_TURNS_SO_FAR)
			hand_over(w->f.c, SEEKING_STREAMS);
	}
	if (w->f.c->told_by == SEEKING_STREAMS && h->in.state == FRAMES_IN_STEP && h->out.state == FRAMES_IN_STEP)
		hand_over(w->f.c, BY_STREAMS);
}

#endif
