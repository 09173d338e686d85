/* SPDX-License-Identifier: GPL-2.0 */
/*
 * http2_connection.bpf.h: what is kept of a connection of HTTP/2, and of each stream that is open on it. Frames are seen
 * where the socket is locked, or owned by who handles its packets. The return of a send call alone is seen where it is
 * not: it takes out of `endings` what it ends, under their lock, and of a stream it writes only `send_end_ns` before it
 * changes `state`. Whoever changes that last, closes the stream.
 */
#ifndef LATENCYPROBE_HTTP2_CONNECTION_BPF_H
#define LATENCYPROBE_HTTP2_CONNECTION_BPF_H

#include <bpf/bpf_helpers.h>
#include "events.h"
#include "kernel.h"
#include "maps.bpf.h"
#include "storage.bpf.h"

#define FRAME_HEADER_BYTES 9  /* RFC 9113, section 4.1 */
#define EXTENSION_BYTES 16384 /* the least SETTINGS_MAX_FRAME_SIZE, section 6.5.2: no extension has longer frames */
#define PREFACE_BYTES 24      /* section 3.4 */
#define LEAST_ASK_BYTES 10    /* HEADERS that open a stream: some field is in them, or in what continues them */
#define ARRIVALS 32
#define ENDINGS 128	  /* 64 were too few for 100 streams in one send call */
#define OPEN_STREAMS 4096 /* of a connection; to end them all takes some milliseconds */
#define MOST_STREAMS 65536
#define SLOTS 128
#define STREAM_ENDED (STREAM_REQUEST_ENDED | STREAM_ANSWER_ENDED)

/* What is known of one direction's frames. */
enum frames_state {
	FRAMES_LOST = 0,     /* where they lie is not known */
	FRAMES_PREFACE = 1,  /* the client's first bytes come next */
	FRAMES_SETTINGS = 2, /* the first frame, which is SETTINGS, comes next */
	FRAMES_IN_STEP = 3,
	FRAMES_TRIED = 4, /* of one call or packet alone: it may be whole frames from first to last byte */
};

struct direction {
	__u32 next;	  /* sequence number of the first byte of a frame's header that is not known */
	__u32 ending;	  /* inbound: the stream that the frame ends whose payload goes on; 0: none */
	__u32 ending_seq; /* where that frame ends */
	__u32 continued;  /* the stream whose header block goes on in CONTINUATION, and ends it; 0: none */
	__u32 tries;
	__u8 state; /* enum frames_state */
	__u8 have;  /* bytes of the header so far */
	__u8 _pad[2];
	__u8 header[32]; /* the first 9 are used; the verifier adds up what lengths could be */
};

/* Bytes up to `seq` had arrived at `ns`. */
struct arrival {
	__u64 ns;
	__u32 seq;
	__u32 late; /* there was no room for one before it: some of its bytes had come earlier */
};

/* A frame that was given to a send call ends its stream at `seq`. */
struct ending {
	__u32 id;
	__u32 seq;
};

/* The frame that is looked at. */
struct frame {
	__u32 seq; /* of its header */
	__u32 end; /* behind its last byte */
	__u32 id;
	__u8 type;
	__u8 flags;
	__u8 _pad[2];
};

/*
 * `frame` and what follows it are here and not on the stack, where the verifier would remember them from step to step
 * and follow each of their combinations.
 */
struct http2 {
	struct bpf_spin_lock lock; /* of endings_head, endings_tail and endings */
	__u32 call_until;	   /* where the send call in progress will have written all */
	__u64 cookie;
	__u64 call_ns; /* the send call in progress began */
	__u64 call_pid_tgid;
	__u64 returned_ns; /* the last one returned */
	struct frame frame;
	__u32 tried;  /* frames of a direction in FRAMES_TRIED */
	__u8 refused; /* it is no HTTP/2 */
	__u8 lost;    /* something else was where a frame must begin */
	__u8 taken;   /* enum taken */
	__u8 approx;  /* of the arrival that was asked for last: it is not known when it was */
	struct direction in;
	struct direction out;
	__u32 target_set;     /* under which the open streams are counted */
	__u32 last_id;	      /* the largest id of a client's stream; 0: not known */
	__u32 asked_until;    /* where its first HEADERS end; further by what calls counted unseen take */
	__u32 answered;	      /* the stream of the answers' last frame that was looked at */
	__u32 answered_until; /* and where it ends */
	__s32 open;	      /* streams */
	__s32 unslotted;      /* of these, not in `slots` */
	__u32 in_base;	      /* sequence number of the direction's first byte */
	__u32 out_base;
	__u32 arrived; /* the last one noted */
	__u32 arrivals_head;
	__u32 arrivals_tail;
	__u32 endings_head;
	__u32 endings_tail;
	__u32 closing; /* what ends the open streams: enum outcome, and above 8 bits enum excluded */
	__u64 closing_ns;
	__u64 left_ns; /* the connection has left */
	__u32 left;    /* enum outcome: how; 0: it has not */
	__u8 role;
	__u8 fresh;	   /* no stream was seen yet of a connection known from its beginning */
	__u8 arrivals_cut; /* there was no room for the last ones */
	__u8 placed;	   /* in.next and out.next are set */
	__u8 resumed;	   /* of the client's frames some passed unseen since last_id */
	__u8 followed;	   /* BY_STREAMS at the last look */
	__u16 room; /* for how many open streams it has taken room, as `share` of its namespace: struct target_set */
	__u32 share;
	struct arrival arrivals[ARRIVALS];
	struct ending endings[ENDINGS];
	__u32 slots[SLOTS]; /* open streams, by their number modulo SLOTS; 0: none */
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct http2);
} http2_connections SEC(".maps");

/*
 * Open streams of a node, 256 bytes each, allocated when they open. One for which there is no room is not measured, and
 * counted (LOST_STATE).
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MOST_STREAMS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct stream_key);
	__type(value, struct stream);
} streams SEC(".maps");

/* For how many of them each namespace has taken room: by target_set.share; and all together. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1024); /* as `shares` */
	__type(key, __u32);
	__type(value, __s64);
} streams_of SEC(".maps");

static __s64 streams_taken;

/*
 * Take room for so many, or give it back. A namespace may have as much as is free: half of all, a third beside another one.
 * So whoever comes next finds room. False: there is none. Not static: it is verified once.
 */
__noinline bool take_room(__u32 share, __s32 streams)
{
	__s64 *mine = bpf_map_lookup_elem(&streams_of, &share);

	if (!mine || (streams > 0 && *mine + streams > MOST_STREAMS - streams_taken))
		return false;
	__sync_fetch_and_add(mine, streams);
	__sync_fetch_and_add(&streams_taken, streams);
	return true;
}

/*
 * Tell whether there is room for one more open stream. A connection takes as much again each time that it needs more, and
 * keeps it to its end: few streams write what all processors do.
 */
static __always_inline bool has_room(struct http2 *h)
{
	__u16 more = h->room ?: 1;

	if (h->open < h->room)
		return true;
	if (h->room >= OPEN_STREAMS)
		return false;
	if (!h->room) {
		const struct target_set *set = bpf_map_lookup_elem(&target_sets, &h->target_set);

		h->share = set ? set->share : 0;
	}
	if (!take_room(h->share, more))
		return false;
	h->room += more;
	return true;
}

/* The connection has ended. */
static __always_inline void give_room(struct http2 *h)
{
	take_room(h->share, -(__s32)h->room);
	h->room = 0;
}

/* Positions that frames are measured against, read where the socket is locked. */
static __always_inline bool is_before(__u32 seq, __u32 other)
{
	return (__s32)(seq - other) < 0;
}

/* Up to `seq`, frames of this direction have passed that no hook showed, or their headers begun to. A FIN is one byte. */
static __always_inline bool passed_unseen(const struct direction *d, __u32 seq)
{
	return is_before(d->next + 1, seq);
}

static __always_inline struct stream *find_stream(const struct http2 *h, __u32 id)
{
	struct stream_key key = { .cookie = h->cookie, .id = id };

	return bpf_map_lookup_elem(&streams, &key);
}

#endif
