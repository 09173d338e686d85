/* SPDX-License-Identifier: GPL-2.0 */
/*
 * exchange_decide.bpf.h: which sockets are measured, and where their streams stand then. Each socket is looked up once
 * per plan, and the answer kept with it (docs/design/measurement.md, "Which sockets"); flow.bpf.h has the rules.
 */
#ifndef LATENCYPROBE_EXCHANGE_DECIDE_BPF_H
#define LATENCYPROBE_EXCHANGE_DECIDE_BPF_H

#include <bpf/bpf_helpers.h>
#include "exchange_account.bpf.h"
#include "exchange_census.bpf.h"
#include "exchange_notes.bpf.h"
#include "flow.bpf.h"

/* States in which write_seq counts our FIN. A closed socket may have sent none, but it writes no more either. */
#define FIN_SENT (1 << TCP_FIN_WAIT1 | 1 << TCP_FIN_WAIT2 | 1 << TCP_CLOSING | 1 << TCP_LAST_ACK | 1 << TCP_CLOSE)

/* A FIN takes one sequence number of rcv_nxt and, once read, of copied_seq, ours of write_seq; it is no data. */
static __always_inline void read_positions(const struct sock *sk, const struct tcp_sock *tp, struct view *v)
{
	__u32 fin = sk->__sk_common.skc_flags & SOCK_DONE_BIT ? 1 : 0;

	v->tp = tp;
	v->received = tp->rcv_nxt - fin;
	v->copied = tp->copied_seq;
	if ((__s32)(v->copied - v->received) > 0)
		v->copied = v->received;
	v->written = tp->write_seq; /* before the state: the FIN comes after it */
	v->written -= FIN_SENT >> (sk->__sk_common.skc_state & 31) & 1;
	v->acked = tp->snd_una;
	v->flags = 0;
}

static __always_inline void read_view(const struct sock *sk, const struct tcp_sock *tp, struct view *v)
{
	v->now_ns = now_ns();
	read_positions(sk, tp, v);
}

/* Positions now; right only while the socket is locked. Offsets: docs/design/measurement.md, "Pairing". */
static __always_inline void place(struct connection *c, const struct tcp_sock *tp, const struct view *v)
{
	c->in_seq = v->copied;
	c->read_seq = v->copied;
	c->out_seq = v->written;
	c->in_offset = tp->bytes_received - (__u32)(tp->rcv_nxt - v->copied);
	c->out_offset = tp->bytes_acked + (__u32)(v->written - tp->snd_una);
	if (c->current.role == ROLE_CLIENT)
		c->out_offset--; /* its SYN is in bytes_acked */
}

/*
 * Who connected, told by a connection that is older than we are: bytes_acked counts the SYN of the end that did, and else
 * what was acknowledged of the payload, which the other counters know too (net/ipv4/tcp_input.c, tcp_snd_una_update). They
 * part where a segment was to be sent and could not; then it is not known.
 */
static __always_inline __u8 role_of_old(const struct tcp_sock *tp)
{
	__u64 payload_acked = tp->bytes_sent - tp->bytes_retrans - (__u32)(tp->snd_nxt - tp->snd_una);

	switch (tp->bytes_acked - payload_acked) {
	case 0:
		return ROLE_SERVER;
	case 1:
		return ROLE_CLIENT;
	}
	return ROLE_UNKNOWN;
}

/*
 * This connection is not measured any more: what is open ends uncounted, under the old target set. One that cannot be
 * measured is reported by an exchange of its own, once. False: its lock was not to be had.
 */
static __always_inline bool drop(struct connection *c, const struct config *cfg, __u8 why)
{
	bool report, never = why == EXCLUDED_UNSUPPORTED;
	__u32 set, waits;

	unfollow(c);
	if (!lock_connection(c))
		return false;
	set = c->target_set;
	waits = c->previous_used; /* ended, and its send call has not returned */
	report = c->target_set && (never || c->phase != PHASE_IDLE);
	c->target_set = 0;
	c->generation = never ? NEVER_MEASURED : cfg->generation;
	c->phase = PHASE_IDLE;
	c->previous_used = 0;
	forget_notes(c);
	c->current.request_bytes = 0; /* those of an earlier exchange */
	c->current.response_bytes = 0;
	c->current.conn_class = never ? CLASS_UNSUPPORTED : CLASS_UNKNOWN;
	c->current.excluded = why;
	unlock_connection(c);
	forget_verdict(c);
	count_unaccounted(set, waits);
	if (report)
		account(&c->current, NULL);
	return true;
}

/*
 * The hook's hold of the socket. LOCKED: locked or owned, so its positions may be taken. UNLOCKED: a connection that is
 * not measured yet waits for its next locked hook. SENDING: locked, and at least once per message, so this hook alone
 * counts a connection for which there is no room.
 */
enum hold {
	UNLOCKED = 0,
	LOCKED = 1,
	SENDING = 2,
};

/* The same connection, unless its calls are streams. */
static __always_inline struct connection *by_turns(struct connection *c)
{
	return c && c->told_by < SEEKING_STREAMS ? c : NULL;
}

/* Who tells of a connection under a target set that it did not have before. */
static __always_inline __u8 teller(__u8 before, const struct target_set *t, __u8 first_excluded)
{
	if (before == BY_TURNS_FOR_GOOD)
		return before;
	if (!t || t->protocol != PROTOCOL_HTTP2)
		return BY_TURNS;
	if (before == BY_TURNS)
		return first_excluded == EXCLUDED_NONE ? BY_TURNS_SO_FAR : SEEKING_STREAMS;
	return before;
}

/* Look this socket up in the plan and keep the answer with it. NULL: not measured. */
static __noinline struct connection *decide(struct sock *sk, __u8 role, __u8 first_excluded, enum hold hold)
{
	/* the generation first: with rules older than it the decision would outlive the plan that it came from */
	const struct config *cfg = get_config();
	__u64 generation = cfg ? cfg->generation : 0, cgroup_id = sock_cgroup_id(sk), cookie;
	const struct scope *scope = bpf_map_lookup_elem(&scopes, &cgroup_id);
	struct connection *c = find_connection(sk);
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	struct target_set *t;
	struct flow flow = {};
	struct view v;
	__u32 set, netns_ino;
	bool peer;

	if (!cfg || !tp)
		return NULL;
	if (!scope)
		scope = &cfg->host;
	if (!scope->server_group && !scope->client_group) {
		if (c)
			drop(c, cfg, EXCLUDED_PLAN);
		return NULL;
	}
	if (c && c->current.local_port) {
		/* as it was when established: a closing socket has lost its port */
		__builtin_memcpy(flow.local_addr, c->current.local_addr, sizeof(flow.local_addr));
		__builtin_memcpy(flow.peer_addr, c->current.peer_addr, sizeof(flow.peer_addr));
		flow.local_port = c->current.local_port;
		flow.peer_port = c->current.peer_port;
		role = c->current.role;
	} else {
		read_flow(sk, &flow);
		if (role == ROLE_UNKNOWN)
			role = marked_role(sk);
		if (role == ROLE_UNKNOWN)
			role = role_of_old(tp);
	}
	set = find_target(scope, &flow, &role);
	peer = set && is_replica(scope, &flow, role);
	if (c && c->current.local_port && c->target_set && c->target_set == set) {
		c->peer = peer;
		c->generation = generation;
		return c;
	}
#ifndef CONNECTIONS_IN_HASH /* where there is no HTTP/2 */
	/* Streams go on until then: no frame that is read meanwhile may be missed. But only until the plan after, in which the
	 * number of its target set may be another one's. */
	if (hold == UNLOCKED && set && c && !by_turns(c) && generation == c->generation + 1)
		return NULL;
#endif
	if (c && !drop(c, cfg, EXCLUDED_PLAN))
		return NULL;
	if (hold == UNLOCKED) {
		if (c && set)
			c->generation = UNDECIDED;
		return NULL;
	}
	if (!c && !set) {
		mark_unmeasured(sk, generation, role);
		return NULL;
	}
	c = make_connection(sk);
	if (!c) {
		if (set && hold == SENDING) {
			count_lost(LOST_STORAGE);
			count_unaccounted(set, 1);
		}
		return NULL;
	}
	cookie = cookie_of(sk, c);
	netns_ino = sk->__sk_common.skc_net.net->ns.inum;
	t = bpf_map_lookup_elem(&target_sets, &set);
	read_view(sk, tp, &v);
	if (!lock_connection(c))
		return NULL;
	c->target_set = set;
	c->generation = generation;
	c->current.sock_cookie = cookie;
	c->current.cgroup_id = cgroup_id;
	c->current.netns_ino = netns_ino;
	c->current.target_set = set;
	c->current.role = role;
	__builtin_memcpy(c->current.local_addr, flow.local_addr, sizeof(flow.local_addr));
	__builtin_memcpy(c->current.peer_addr, flow.peer_addr, sizeof(flow.peer_addr));
	c->current.local_port = flow.local_port;
	c->current.peer_port = flow.peer_port;
	c->phase = PHASE_IDLE;
	c->send_owner = SEND_NONE;
	forget_notes(c);
	c->turns = 0;
	c->unread_history = 0;
	c->early_history = 0;
	c->initiative_history = 0;
	c->clean_turns = 0;
	c->probation = 0;
	c->ambiguous = 0;
	c->peer_overlaps = 0;
	c->cut = 0;
	c->resuming = 0;
	c->hasty = 0;
	c->refused = 0;
	c->goodbye = 0;
	c->half_closed = 0;
	c->farewell = 0;
	c->stalled = 0;
	c->one_way = 0;
	c->fin_ns = 0;
	c->close_ns = 0;
	c->pause_ns = t ? t->pause_ns : 0;
	c->tls = t ? t->tls : 0;
	bytes_move(c, &v); /* silence counts from here */
	c->peer = peer;
	/* an old connection has had its set-up turns */
	c->setup_turns = t && first_excluded != EXCLUDED_PARTIAL ? t->setup_turns : 0;
	c->first_excluded = first_excluded;
	c->told_by = teller(c->told_by, t, first_excluded);
	follow(c, set);
	place(c, tp, &v);
	c->talked = role == ROLE_SERVER ? c->in_offset > 0 : c->out_offset > 0;
	unlock_connection(c);
	if (set)
		count_in_census(CENSUS_BEGUN);
	if (set && is_unsupported(sk, tp)) {
		drop(c, cfg, EXCLUDED_UNSUPPORTED);
		return NULL;
	}
	return set ? c : NULL;
}

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scope_filter);
} scope_filter SEC(".maps");

/* What nearly every socket of a node pays for the few that are measured: one bit of its cgroup. */
static __always_inline bool passes_filter(const struct sock *sk)
{
	__u32 zero = 0, bit = (__u32)sock_cgroup_id(sk) * LP_SCOPE_FILTER_FACTOR >> 16;
	const struct scope_filter *filter = bpf_map_lookup_elem(&scope_filter, &zero);

	return filter && filter->words[bit / 64 % LP_SCOPE_FILTER_WORDS] >> bit % 64 & 1;
}

/* The filter has bits that several cgroups share. */
static __always_inline bool in_scope(const struct sock *sk, const struct config *cfg)
{
	__u64 cgroup_id;

	if (cfg->host.server_group || cfg->host.client_group)
		return true;
	cgroup_id = sock_cgroup_id(sk);
	return bpf_map_lookup_elem(&scopes, &cgroup_id);
}

/* The measured connection of a socket for hooks that adopt nothing, or NULL. */
static __always_inline struct connection *measured(struct sock *sk, const struct config *cfg)
{
	struct connection *c = find_connection(sk);

	if (!c)
		return NULL;
	if (c->generation == cfg->generation || c->generation == NEVER_MEASURED)
		return c->target_set ? by_turns(c) : NULL;
	return by_turns(decide(sk, ROLE_UNKNOWN, EXCLUDED_PARTIAL, UNLOCKED));
}

/* Of a socket that its peer opens: what came in the SYN came past every hook. */
static __always_inline __u8 excluded_of_accepted(const struct tcp_sock *tp)
{
	return tp->bytes_received ? EXCLUDED_TFO : EXCLUDED_NONE;
}

/* A server may answer what came in the SYN before the handshake is over (RFC 7413, 4.2): no state has told of it yet. */
static __always_inline struct connection *connection_of_early(struct sock *sk)
{
	const struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);

	if (!tp || !tp->fastopen_rsk)
		return NULL;
	return by_turns(decide(sk, ROLE_SERVER, excluded_of_accepted(tp), SENDING));
}

/*
 * The same for hooks that adopt, as far as their hold allows. Nothing but TCP has storage of ours. Sockets whose cgroup
 * has left the plan are let go by the flush, which user space runs whenever it has put a plan in force.
 */
static __always_inline struct connection *connection_of(struct sock *sk, enum hold hold, const struct config *cfg)
{
	struct connection *c;
	bool early;

#ifndef CONNECTIONS_IN_HASH /* which cannot be flushed */
	if (!passes_filter(sk))
		return NULL;
#endif
	c = find_connection(sk);
	if (c && (c->generation == cfg->generation || c->generation == NEVER_MEASURED))
		return c->target_set ? by_turns(c) : NULL;
	early = hold == SENDING && sk->__sk_common.skc_state == TCP_SYN_RECV;
	if (!early && sk->__sk_common.skc_state != TCP_ESTABLISHED)
		hold = UNLOCKED;
	if (!c && (hold == UNLOCKED || !is_tcp(sk) || is_unmeasured(sk, cfg->generation) || !in_scope(sk, cfg)))
		return NULL;
	if (early)
		return connection_of_early(sk);
	return by_turns(decide(sk, ROLE_UNKNOWN, EXCLUDED_PARTIAL, hold));
}

#endif
