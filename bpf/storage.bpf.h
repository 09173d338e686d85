/* SPDX-License-Identifier: GPL-2.0 */
/*
 * storage.bpf.h: what is kept with each measured socket. exchange_connection.bpf.h is its state machine; evidence looks
 * up in it whose socket it is. One map for all objects of an agent.
 */
#ifndef LATENCYPROBE_STORAGE_BPF_H
#define LATENCYPROBE_STORAGE_BPF_H

#include <bpf/bpf_helpers.h>
#include "events.h"
#include "exchange_unmeasured.bpf.h"

enum phase {
	PHASE_IDLE = 0,	    /* no turn is open */
	PHASE_REQUEST = 1,  /* request bytes seen, none of the response */
	PHASE_RESPONSE = 2, /* response begun; the next request ends it */
	PHASE_LATE = 3,	    /* response begun, and request bytes that left before it was whole */
	PHASE_PUSH = 4,	    /* bytes of the server that nobody asked for: greeting or push */
	PHASE_REPLY = 5,    /* what the client sends to a push, without a pause after it */
};

/* Whose message the send call in progress writes. */
enum send_owner {
	SEND_NONE = 0,
	SEND_CURRENT = 1,
	SEND_PREVIOUS = 2, /* the next request's data-ready came before this send returned */
};

/*
 * Whose a connection is: that of the turns, or of http2.bpf.c; from SEEKING on turns are not looked for. Plans that ask
 * for no HTTP/2 know TURNS alone.
 */
enum told_by {
	BY_TURNS = 0,
	BY_TURNS_FOR_GOOD = 1, /* was found to be no HTTP/2 */
	BY_TURNS_SO_FAR = 2,   /* seen from its beginning, its first frames have not passed yet */
	SEEKING_STREAMS = 3,   /* older: HTTP/2 is looked for in its middle */
	BY_STREAMS = 4,
};

/* Generation of sockets that cannot be measured, by no plan ever; and of one that waits for a hook with its lock. */
#define NEVER_MEASURED (~0ULL)
#define UNDECIDED 0ULL

/* What calls that return as expected leave for the next hook that takes the connection's lock: exchange_notes.bpf.h. */
struct notes {
	__u64 returned_ns;   /* the send call in progress returned; 0: no note */
	__u64 read_first_ns; /* receive calls that moved bytes */
	__u64 read_last_ns;
	__u64 reader; /* pid_tgid of the last one */
	__u32 read_seq;
	__u32 reads; /* how many; 0: no note */
	__u32 returned_tid;
	__u32 written; /* up to here, when it returned */
};

/* What a send call of the open message left in the socket, for who ends the exchange: exchange_unsent.bpf.h. */
struct unsent {
	__u64 tcp_sock; /* its address, as a number */
	__u64 at_ns;	/* monotonic: when the call returned */
	__u32 message;	/* where the message begins */
	__u32 written;	/* up to here, when it returned */
	__u32 bytes;	/* the most that a call of this message left */
	__u32 reason;	/* enum unsent_reason; 0: no note */
};

struct connection {
#ifdef CONNECTIONS_IN_HASH
	__u32 lock;
#else
	struct bpf_spin_lock lock;
#endif
	__u32 target_set; /* 0: no target any more */
	__u64 generation; /* of the plan that decided */
	__u64 in_offset;  /* stream offset of in_seq: inbound bytes known to have arrived */
	__u64 out_offset; /* stream offset of out_seq: outbound bytes known to be written */
	__u64 last_ns;	  /* last event */
	__u64 moved_ns;	  /* last byte that moved, either way */
	__u64 pause_ns;	  /* of the target set */
	__u64 send_ns;	  /* when the send call in progress was last seen to write */
	__u64 fin_ns;	  /* the peer's FIN, 0 = none */
	__u64 close_ns;	  /* a server left without an answer, or a RST met a client: judged later; 0 = not so */
	__u64 lulls_ns;	  /* pauses in the open request too short to be silence */
	__u64 late_ns;	  /* PHASE_LATE: the first late bytes of the request */
	struct notes notes;
	struct unsent unsent;
	__u32 in_seq;
	__u32 out_seq;
	__u32 read_seq;		  /* copied_seq as last seen */
	__u32 unread_history;	  /* 32 turns: the next message was sent over unread bytes */
	__u32 early_history;	  /* 32 turns: bytes arrived that the peer sent before it had all of ours */
	__u32 initiative_history; /* 32 turns: it was a push, streaming, or one-way again */
	__u32 late_seq;		  /* PHASE_LATE: where the late bytes begin */
	__u32 disturbed;	  /* at moved_ns: segments sent again, and out of order, so far */
	__u32 turns;
	__u32 clean_turns;    /* since the last overlap */
	__u32 probation;      /* clean turns that end `ambiguous` */
	__u32 ambiguous_from; /* turns when it became so */
	__u32 setup_turns;    /* turns of protocol set-up still to come */
	__u32 send_tid;
	__u32 send_until;  /* where the send call in progress will have written all: the same while it lasts */
	__u32 retransmits; /* total_retrans when the exchange opened */
	__u8 phase;
	__u8 send_owner;
	__u8 previous_used;
	__u8 first_excluded; /* enum excluded of the next exchange to end, whose beginning was not seen */
	__u8 unread;	     /* the open exchange overlaps: sent over unread bytes */
	__u8 early;	     /* the open exchange overlaps: its bytes left the peer before ours had reached it */
	__u8 talked;	     /* client bytes were seen */
	__u8 ambiguous;	     /* CLASS_PIPELINED, CLASS_MULTIPLEXED or CLASS_PUSH until enough clean turns, else 0 */
	__u8 peer_overlaps;  /* the other end, on this host, has found so: exchange_verdict.bpf.h */
	__u8 own;	     /* the agent's */
	__u8 peer;	     /* the other end is a replica: nothing here is an RPC */
	__u8 cut;	     /* the open push goes on with the response before it, which was cut as streaming */
	__u8 initiative;     /* the turn that is judged, as a bit of initiative_history */
	__u8 resuming;	     /* turns of the server until the client is taken to ask again; 0: only silence tells */
	__u8 goodbye;	     /* the open exchange was begun when the server had said goodbye: nobody can answer it */
	__u8 tls;	     /* of the target set */
	__u8 awoke;	     /* the open turn began when none was open */
	__u8 farewell;	     /* the last turn of the connection ends, and was a goodbye */
	__u8 stalled;	     /* the flush ended a trusted response: what comes next may be its rest */
	__u8 half_closed;    /* this end serves and has sent its FIN: it answers no more */
	__u8 one_way;	     /* a message was found to be one-way */
	__u8 hasty;	     /* this end serves and answered over unread bytes: what comes may be the rest of them */
	__u8 waited;	     /* the client has called for an answer since it asked */
	__u8 refused;	     /* enum outcome: a RST met the client, and whether it wants an answer is not known yet */
	__u8 step;	     /* phase after the bytes that move now, with ENDS */
	__u8 leaving;	     /* enum leaving, of the change of state that goes on */
	__u8 leaving_outcome;
	__u8 ended_used; /* `ended` waits to be accounted for */
	__u8 overrun;	 /* turns that ended while it did so */
	__u8 told_by;	 /* enum told_by */
	__u8 followed;	 /* it has a target, and its end was not seen yet: exchange_census.bpf.h */
	struct exchange current;
	struct exchange previous; /* ended, but its last send call has not returned */
	struct exchange ended;	  /* to be accounted for, which goes without the lock; programs have no stack for it */
};

/*
 * drift: 8e4597c627fb ("bpf: Allow using bpf_sk_storage in FENTRY/FEXIT/RAW_TP"), v5.11
 * newer: socket storage, freed with its socket; spin locks; socket cookies
 * older: none of these. exchange_connection_in_hash.bpf.h has what takes their place
 * test:  the kernel's function bpf_sk_storage_tracing_allowed; the loader then takes exchange_hash.bpf.o
 * drop:  with the last supported kernel before 5.11
 */
#ifdef CONNECTIONS_IN_HASH
#include "exchange_connection_in_hash.bpf.h"
#else

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct connection);
} connections SEC(".maps");

static __always_inline struct connection *find_connection(struct sock *sk)
{
	return bpf_sk_storage_get(&connections, sk, 0, 0);
}

/* Find it or make it, all zero. NULL: there is no room. */
static __always_inline struct connection *make_connection(struct sock *sk)
{
	return bpf_sk_storage_get(&connections, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
}

/* For where a socket ends: here its storage does so too. */
static __always_inline void forget_connection(struct sock *sk)
{
}

/* For where a socket begins: it has no storage of an earlier one at its address, but maybe the mark of its last connection. */
static __always_inline void forget_earlier(struct sock *sk)
{
	forget_mark(sk);
}

/*
 * The socket connects, maybe again: as if nothing were known of it. Its target set stays until it is decided on anew, for
 * who ends at this hook, behind us, what was open.
 */
static __always_inline void renew_connection(struct sock *sk)
{
	struct connection *c = find_connection(sk);

	if (!c)
		return;
	c->current.local_port = 0;
	c->generation = UNDECIDED;
	c->told_by = BY_TURNS;
}

/* False: it is not to be had, and the firing is counted as lost. Never here. */
static __always_inline bool lock_connection(struct connection *c)
{
	bpf_spin_lock(&c->lock);
	return true;
}

static __always_inline void unlock_connection(struct connection *c)
{
	bpf_spin_unlock(&c->lock);
}

/* A number that no other socket ever has. */
static __always_inline __u64 cookie_of(struct sock *sk, const struct connection *c)
{
	return bpf_get_socket_cookie(sk);
}

#endif

#endif
