/* SPDX-License-Identifier: GPL-2.0 */
/*
 * http2_streams.bpf.h: a stream opens, is answered, ends, and is accounted for as an exchange is: docs/design/http2.md,
 * "Calls". Stamps, stages, counts, sampling and records are those of exchanges.
 */
#ifndef LATENCYPROBE_HTTP2_STREAMS_BPF_H
#define LATENCYPROBE_HTTP2_STREAMS_BPF_H

#include <bpf/bpf_helpers.h>
#include "events.h"
#include "kernel.h"
#include "http2_closing.bpf.h"

/* What h->frame is seen with. */
struct seen {
	struct http2 *h;
	struct connection *c;
	const struct tcp_sock *tp;
	__u64 now_ns;
	bool out; /* this end sends it */
};

/*
 * The client sends it. Here and below facts are read from memory again, where the verifier forgets them: else it would
 * follow each of their combinations to the end.
 */
static __always_inline bool asks(const struct seen *f)
{
	return (*(volatile __u8 *)&f->h->role == ROLE_CLIENT) == f->out;
}

static const struct stream no_stream;

/* Where in its direction a byte lies. */
static __always_inline __u64 offset_of(const struct http2 *h, const struct tcp_sock *tp, __u32 seq, bool out)
{
	if (!out)
		return tp->bytes_received - (__u64)(__s64)(__s32)(tp->rcv_nxt - seq);
	return tp->bytes_acked + (__s64)(__s32)(seq - tp->snd_una) - (h->role == ROLE_CLIENT);
}

/*
 * When the bytes before `end` had arrived; no later frame's have before. Notes lie in order: the first one that has
 * them is found without a branch. With h->approx, if only that they had when they were read.
 */
static __noinline __u64 arrived_ns(struct seen *f, __u32 end)
{
	struct http2 *h = f->h;
	__u32 tail = h->arrivals_tail, head = h->arrivals_head, before;

#pragma unroll
	for (__u32 step = ARRIVALS; step; step /= 2) {
		before = (h->arrivals[(tail + step - 1) % ARRIVALS].seq - end) >> 31;
		tail += step * (before & (tail + step - head - 1) >> 31);
	}
	h->arrivals_tail = tail;
	h->approx = (tail == head) | h->arrivals[tail % ARRIVALS].late;
	return tail == head ? f->now_ns : h->arrivals[tail % ARRIVALS].ns;
}

static __always_inline void note_writer(struct exchange *x, const struct http2 *h)
{
	x->send_start_ns = h->call_ns;
	x->writer_tgid = h->call_pid_tgid >> 32;
	x->writer_tid = h->call_pid_tgid;
	x->send_calls = 1;
}

static __always_inline void note_reader(struct exchange *x, __u64 ready_ns, __u64 now_ns)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid();

	x->ready_first_ns = ready_ns;
	x->ready_last_ns = ready_ns;
	x->read_first_ns = now_ns;
	x->read_last_ns = now_ns;
	x->reader_tgid = pid_tgid >> 32;
	x->reader_tid = pid_tgid;
	x->recv_calls = 1;
}

/* The client's HEADERS open a stream. NULL: there is no room. `ready_ns`: when they had arrived, at the server. */
static __noinline struct stream *open_stream(struct seen *f, __u64 ready_ns)
{
	struct stream_key key = { .cookie = f->h->cookie, .id = f->h->frame.id };
	const struct exchange *of = &f->c->current;
	struct http2 *h = f->h;
	__u32 *slot = &h->slots[h->frame.id / 2 % SLOTS];
	struct exchange *x;
	struct stream *s;

	if (!has_room(h) || bpf_map_update_elem(&streams, &key, &no_stream, BPF_NOEXIST)) {
		count_lost(LOST_STATE);
		count_unaccounted(h->target_set, 1);
		return NULL;
	}
	s = bpf_map_lookup_elem(&streams, &key);
	if (!s)
		return NULL;
	if (!*slot)
		*slot = h->frame.id;
	else
		__sync_fetch_and_add(&h->unslotted, 1);
	__sync_fetch_and_add(&h->open, 1);
	s->retransmits = f->tp->total_retrans;
	x = &s->x;
	x->sock_cookie = h->cookie;
	x->cgroup_id = of->cgroup_id;
	__builtin_memcpy(x->local_addr, of->local_addr, sizeof(x->local_addr));
	__builtin_memcpy(x->peer_addr, of->peer_addr, sizeof(x->peer_addr));
	x->netns_ino = of->netns_ino;
	x->target_set = h->target_set;
	x->local_port = of->local_port;
	x->peer_port = of->peer_port;
	x->role = h->role;
	x->stream_id = h->frame.id;
	x->flags = h->fresh ? FLAG_FRESH : 0;
	h->fresh = 0;
	x->request_seq = h->frame.seq;
	x->request_offset = offset_of(h, f->tp, h->frame.seq, f->out);
	x->response_seq = f->out ? h->in_base : h->out_base;
	if (f->out)
		note_writer(x, h);
	else
		note_reader(x, ready_ns, f->now_ns);
	return s;
}

/*
 * No byte of the answer for so long: it was not one message, unless TCP had to send some of it again. What came last is the
 * frame before this one, if that was of this stream, and else the header of the stream's last one.
 */
static __always_inline bool paused(const struct seen *f, const struct stream *s, __u64 at_ns, __u64 before_ns)
{
	__s64 quiet_ns = at_ns - (before_ns > s->answer_ns ? before_ns : s->answer_ns);

	return quiet_ns >= (__s64)f->c->pause_ns && quiet_ns >= (__s64)TWO_ROUND_TRIPS_NS(f->tp->srtt_us) &&
	       s->disturbed == disturbances(f->tp);
}

/*
 * HEADERS or DATA of the server. Its first HEADERS begin the answer; those of an interim response (1xx) are followed by
 * others that do not end it, before any DATA: then these do.
 */
static __always_inline void answer_stream(struct seen *f, struct stream *s, bool headers, bool ends, __u64 at_ns,
					  __u64 before_ns)
{
	struct exchange *x = &s->x;

	if (headers && (!(s->flags & STREAM_ANSWERED) || !(ends || s->flags & STREAM_DATA))) {
		s->flags &= ~STREAM_STREAMING;
		s->flags |= STREAM_ANSWERED;
		if (!f->out && !(s->state & (STREAM_REQUEST_ENDED | STREAM_SENDING)))
			s->flags |= STREAM_STREAMING;
		x->response_seq = f->h->frame.seq;
		x->response_offset = offset_of(f->h, f->tp, f->h->frame.seq, f->out);
		if (f->out)
			note_writer(x, f->h);
		else
			note_reader(x, at_ns, f->now_ns);
	} else if (paused(f, s, at_ns, before_ns)) {
		s->flags |= STREAM_STREAMING;
	}
	if (!headers)
		s->flags |= STREAM_DATA;
	s->answer_ns = at_ns;
	s->disturbed = disturbances(f->tp);
}

/*
 * A message has passed this end to its last byte, which changes the stream's state by `change`. Nothing of it may be
 * touched afterwards but by who closes it.
 */
static __always_inline void end_message(struct http2 *h, const struct connection *c, const struct tcp_sock *tp,
					struct stream *s, __u32 change)
{
	__u32 state = __sync_fetch_and_add(&s->state, change) + change;

	if (state & STREAM_RESET)
		break_stream(h, c, tp, s, OUTCOME_STREAM_RESET, s->reset_ns, EXCLUDED_NONE);
	else if ((state & STREAM_ENDED) == STREAM_ENDED)
		close_stream(h, c, tp, s, EXCLUDED_NONE);
}

/* RST_STREAM of either end. */
static __always_inline void reset_stream(struct seen *f, struct stream *s, __u64 at_ns)
{
	s->reset_ns = at_ns;
	if (!(__sync_fetch_and_or(&s->state, STREAM_RESET) & STREAM_SENDING))
		break_stream(f->h, f->c, f->tp, s, OUTCOME_STREAM_RESET, at_ns, EXCLUDED_NONE);
}

/* The last byte of the inbound message was read. What lies before `shown` was so by earlier calls, or unseen. */
static __noinline void end_read(struct seen *f, __u32 shown)
{
	struct direction *d = &f->h->in;
	struct stream *s = find_stream(f->h, d->ending);
	struct exchange *x;

	d->ending = 0;
	if (!s)
		return;
	x = &s->x;
	x->ready_last_ns = arrived_ns(f, d->ending_seq);
	if (f->h->approx)
		x->flags |= FLAG_READY_APPROX;
	x->read_last_ns = f->now_ns;
	if (!is_before(shown, d->ending_seq)) { /* once it had come and its beginning was read */
		x->read_last_ns = less(x->ready_last_ns, x->read_first_ns) ? x->read_first_ns : x->ready_last_ns;
		x->flags |= FLAG_READ_APPROX;
	}
	if (asks(f) && goes_on(f->tp, s, x->ready_last_ns))
		s->flags |= STREAM_STREAMING;
	end_message(f->h, f->c, f->tp, s, asks(f) ? STREAM_REQUEST_ENDED : STREAM_ANSWER_ENDED);
}

/* A send call that wrote the last byte of a message returned at `now_ns`. */
static __always_inline void end_sent(struct http2 *h, const struct connection *c, const struct tcp_sock *tp,
				     struct stream *s, __u64 now_ns, __u32 flags)
{
	s->x.send_end_ns = now_ns;
	if (flags) /* only where the socket is locked */
		s->x.flags |= flags;
	end_message(h, c, tp, s,
		    (h->role == ROLE_CLIENT ? STREAM_REQUEST_ENDED : STREAM_ANSWER_ENDED) - STREAM_SENDING);
}

/* Take out the next message that a send call has written by `written`. 0: none; it may be gone by now. */
static __always_inline __u32 take_ending(struct http2 *h, __u32 written)
{
	__u32 id = 0, at, seq;

	bpf_spin_lock(&h->lock);
	at = h->endings_tail % ENDINGS;
	seq = h->endings[at].seq;
	if (h->endings_tail != h->endings_head && !is_before(written, seq)) {
		id = h->endings[at].id;
		h->endings_tail++;
	}
	bpf_spin_unlock(&h->lock);
	return id;
}

/* The next message that is written by `written` was so by a call that returned at `now_ns`. False: there is none. */
static __always_inline bool end_next_sent(struct http2 *h, const struct connection *c, const struct tcp_sock *tp,
					  __u32 written, __u64 now_ns, __u32 flags)
{
	__u32 id = take_ending(h, written);
	struct stream *s = id ? find_stream(h, id) : NULL;

	if (s)
		end_sent(h, c, tp, s, now_ns, flags);
	return id;
}

struct settling {
	struct http2 *h;
	struct connection *c;
	const struct tcp_sock *tp;
	__u64 ns;
	__u32 written;
	__u32 flags;
};

static long settle_one(__u32 index, struct settling *s)
{
	return !end_next_sent(s->h, s->c, s->tp, s->written, s->ns, s->flags);
}

/* What is written up to `written` was so by a call that returned at `ns`. */
static __always_inline void settle_endings(struct http2 *h, struct connection *c, const struct tcp_sock *tp,
					   __u32 written, __u64 ns, __u32 flags)
{
	struct settling s = { .h = h, .c = c, .tp = tp, .ns = ns, .written = written, .flags = flags };

	if (*(volatile __u32 *)&h->endings_tail != *(volatile __u32 *)&h->endings_head)
		bpf_loop(ENDINGS, settle_one, &s, 0);
}

/* False: there is no room. */
static __always_inline bool put_ending(struct http2 *h, __u32 id, __u32 seq)
{
	bool room;
	__u32 at;

	bpf_spin_lock(&h->lock);
	room = h->endings_head - h->endings_tail < ENDINGS;
	if (room) {
		at = h->endings_head++ % ENDINGS;
		h->endings[at].id = id;
		h->endings[at].seq = seq;
	}
	bpf_spin_unlock(&h->lock);
	return room;
}

#endif
