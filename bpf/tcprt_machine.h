/* SPDX-License-Identifier: GPL-2.0 */
/*
 * tcprt_machine.h: the state machine of TCP-RT, docs/design/evidence.md, "TCP-RT"; tools/tcprt/machine.py is the same
 * in Python, and the tests compare the two. Every function runs under the connection's lock, on values read before it:
 * no clock, no map, no ring. Those that return true have put a record into `out`.
 *
 * v6_* repeat what the original does; the other fields are the corrected account.
 */
#ifndef LATENCYPROBE_TCPRT_MACHINE_H
#define LATENCYPROBE_TCPRT_MACHINE_H

#include "events.h"

enum tcprt_stage {
	STAGE_NONE = 0,
	STAGE_REQUEST = 1,
	STAGE_RESPONSE = 2,
};

/* One operation: its time, and the connection after it. `sent`, `received`: snd_nxt and rcv_nxt without FINs. */
struct tcprt_op {
	__u64 now_ns;
	__u32 snd_nxt;
	__u32 snd_una;
	__u32 rcv_nxt;
	__u32 sent;
	__u32 received;
	__u32 total_retrans;
	__u32 min_rtt_us;
	__u32 mss;
	__u32 ofo;
};

struct tcprt_machine {
	__u64 start_ns;
	__u64 end_ns;
	__u64 v6_end_ns;
	__u64 first_us;
	__u64 last_us; /* peer side: after the first response byte; before it of the last send */
	__u64 server_us;
	__u64 recv_us;
	__u64 sent_bytes; /* of the connection */
	__u64 received_bytes;
	__u32 con_seq;
	__u32 con_rcv;
	__u32 start_seq;
	__u32 start_rcv;
	__u32 last_una;
	__u32 last_retrans;
	__u32 handshake_retrans;
	__u32 task_no;
	__u32 sent_seq; /* ends of the payload seen so far */
	__u32 received_seq;
	__u32 request_rcv; /* received_seq where the message that is counted began */
	__u32 acked_seq;   /* local side: end of the response bytes that are acknowledged */
	__u32 task_end;	   /* peer side: end of the request */
	__u32 task_sent;   /* peer side: bytes of the request; local side: bytes of the request received */
	__u32 v6_task_sent;
	__u8 side; /* enum tcprt_side */
	__u8 stage;
	__u8 reorder;
	__u8 _pad;
};

static __always_inline __s32 tcprt_apart(__u32 a, __u32 b)
{
	return (__s32)(a - b);
}

static __always_inline __u32 tcprt_forward(__u32 a, __u32 b)
{
	__s32 n = tcprt_apart(a, b);

	return n > 0 ? n : 0;
}

static __always_inline void tcprt_init(struct tcprt_machine *m, const struct tcprt_op *op, __u8 side)
{
	m->side = side;
	m->stage = STAGE_NONE;
	m->reorder = 0;
	m->task_no = 0;
	m->con_seq = m->start_seq = op->snd_nxt;
	m->con_rcv = m->start_rcv = op->rcv_nxt;
	m->start_ns = m->end_ns = m->v6_end_ns = op->now_ns;
	m->first_us = m->last_us = m->server_us = m->recv_us = 0;
	m->last_una = op->snd_una;
	m->last_retrans = m->handshake_retrans = op->total_retrans;
	m->sent_seq = m->acked_seq = m->task_end = op->sent;
	m->received_seq = m->request_rcv = op->received;
	m->task_sent = m->v6_task_sent = 0;
	m->sent_bytes = m->received_bytes = 0;
}

static __always_inline void tcprt_begin(struct tcprt_machine *m, const struct tcprt_op *op)
{
	m->start_ns = m->end_ns = m->v6_end_ns = op->now_ns;
	m->last_retrans = op->total_retrans;
	m->server_us = m->recv_us = 0;
	m->task_no++;
	m->stage = STAGE_REQUEST;
}

/* A record of the current task or connection; the caller adds what is sent and received. */
static __always_inline void tcprt_record(const struct tcprt_machine *m, const struct tcprt_op *op, __u8 kind,
					 struct tcprt *out)
{
	bool ended = kind == TCPRT_R || kind == TCPRT_P;

	out->start_ns = m->start_ns;
	out->end_ns = ended ? m->end_ns : op->now_ns;
	out->v6_end_ns = ended ? m->v6_end_ns : op->now_ns;
	out->flow.boot_ns = out->end_ns;
	out->server_us = m->server_us;
	out->recv_us = m->recv_us;
	out->unacked_bytes = tcprt_forward(m->sent_seq, op->snd_una);
	out->v6_unacked_bytes = op->snd_nxt - op->snd_una;
	out->seq = out->end_seq = 0;
	out->task_no = m->task_no;
	out->retransmits = op->total_retrans - (kind == TCPRT_E ? m->handshake_retrans : m->last_retrans);
	out->handshake_retransmits = m->handshake_retrans;
	out->min_rtt_us = op->min_rtt_us;
	out->mss = op->mss;
	out->kind = kind;
	out->side = m->side;
	out->flags = m->reorder ? TCPRT_REORDER : 0;
}

/* R or W: the response so far. `fin`: what V6 takes off for one. */
static __always_inline void tcprt_response(const struct tcprt_machine *m, const struct tcprt_op *op, __u8 kind,
					   __u32 fin, struct tcprt *out)
{
	__u32 sent = tcprt_forward(m->sent_seq, m->start_seq);

	tcprt_record(m, op, kind, out);
	out->sent_bytes = sent;
	out->v6_sent_bytes = op->snd_nxt - m->start_seq - fin;
	out->received_bytes = m->task_sent;
	out->v6_received_bytes = m->v6_task_sent;
	if (sent) {
		out->seq = m->sent_seq - sent;
		out->end_seq = m->sent_seq;
	}
}

/* P: the request, and the response until now. */
static __always_inline void tcprt_answered(const struct tcprt_machine *m, const struct tcprt_op *op, struct tcprt *out)
{
	tcprt_record(m, op, TCPRT_P, out);
	out->sent_bytes = m->task_sent;
	out->v6_sent_bytes = m->v6_task_sent;
	out->received_bytes = tcprt_forward(m->received_seq, m->request_rcv);
	out->v6_received_bytes = op->rcv_nxt - m->start_rcv;
	if (m->task_sent) {
		out->seq = m->task_end - m->task_sent;
		out->end_seq = m->task_end;
	}
}

static __always_inline void tcprt_v6_acked(struct tcprt_machine *m, const struct tcprt_op *op)
{
	if (tcprt_apart(op->snd_una, m->last_una) > 1) {
		m->v6_end_ns = op->now_ns;
		m->last_una = op->snd_una;
	}
}

/* Move the corrected end to this ACK, if it is one of response bytes that none has acknowledged before. */
static __always_inline bool tcprt_acked(struct tcprt_machine *m, const struct tcprt_op *op)
{
	__u32 acked = tcprt_apart(op->snd_una, m->sent_seq) > 0 ? m->sent_seq : op->snd_una;

	if (tcprt_apart(acked, m->acked_seq) <= 0)
		return false;
	m->acked_seq = acked;
	m->end_ns = op->now_ns;
	return true;
}

static __always_inline void tcprt_pkts_acked(struct tcprt_machine *m, const struct tcprt_op *op)
{
	if (m->side != TCPRT_LOCAL)
		return;
	tcprt_v6_acked(m, op);
	tcprt_acked(m, op);
}

static __always_inline bool tcprt_send_data(struct tcprt_machine *m, const struct tcprt_op *op, struct tcprt *out)
{
	__u64 now_us = op->now_ns / 1000;
	bool ended;

	m->sent_bytes += tcprt_forward(op->sent, m->sent_seq);
	m->sent_seq = op->sent;
	if (m->side == TCPRT_LOCAL) {
		if (m->stage != STAGE_REQUEST)
			return false;
		m->server_us = now_us - m->last_us;
		m->recv_us = m->last_us - m->first_us;
		m->task_sent = tcprt_forward(m->received_seq, m->request_rcv);
		m->v6_task_sent = op->rcv_nxt - m->start_rcv;
		m->start_rcv = op->rcv_nxt;
		m->request_rcv = m->received_seq;
		m->stage = STAGE_RESPONSE;
		return false;
	}
	if (m->stage == STAGE_REQUEST) {
		m->last_us = now_us;
		return false;
	}
	ended = m->stage == STAGE_RESPONSE;
	if (ended)
		tcprt_answered(m, op, out);
	tcprt_begin(m, op);
	m->last_us = now_us;
	m->start_rcv = op->rcv_nxt;
	m->request_rcv = m->received_seq;
	m->reorder = 0;
	return ended;
}

static __always_inline bool tcprt_request(struct tcprt_machine *m, const struct tcprt_op *op, struct tcprt *out)
{
	__u64 now_us = op->now_ns / 1000;
	bool ended;

	if (m->stage == STAGE_REQUEST) {
		m->last_us = now_us;
		m->reorder |= op->ofo;
		return false;
	}
	ended = m->stage == STAGE_RESPONSE;
	if (ended) {
		if (tcprt_apart(op->snd_nxt, op->snd_una) > 1)
			m->v6_end_ns = op->now_ns;
		/* a request that comes before the ACK proves the same as the ACK */
		if (!tcprt_acked(m, op) && tcprt_apart(m->sent_seq, op->snd_una) > 0)
			m->end_ns = op->now_ns;
		tcprt_response(m, op, TCPRT_R, 0, out);
	}
	tcprt_begin(m, op);
	m->first_us = m->last_us = now_us;
	m->start_seq = op->snd_nxt;
	m->acked_seq = op->snd_nxt;
	m->last_una = op->snd_una;
	m->reorder = op->ofo;
	return ended;
}

static __always_inline void tcprt_reply(struct tcprt_machine *m, const struct tcprt_op *op)
{
	__u64 now_us = op->now_ns / 1000;

	if (m->stage == STAGE_NONE)
		return;
	if (m->stage == STAGE_REQUEST) {
		m->task_sent = tcprt_forward(m->sent_seq, m->start_seq);
		m->v6_task_sent = op->snd_nxt - m->start_seq;
		m->task_end = m->sent_seq;
		m->start_seq = op->snd_nxt;
		m->server_us = now_us - m->last_us;
		m->first_us = now_us;
		m->stage = STAGE_RESPONSE;
	} else {
		m->recv_us = now_us - m->first_us;
	}
	m->end_ns = m->v6_end_ns = op->now_ns;
	m->reorder |= op->ofo;
}

static __always_inline bool tcprt_recv_data(struct tcprt_machine *m, const struct tcprt_op *op, struct tcprt *out)
{
	bool ended = false;

	if (m->side == TCPRT_LOCAL)
		ended = tcprt_request(m, op, out);
	else
		tcprt_reply(m, op);
	m->received_bytes += tcprt_forward(op->received, m->received_seq);
	m->received_seq = op->received;
	return ended;
}

/* The socket goes: what becomes of its last task. */
static __always_inline bool tcprt_release(struct tcprt_machine *m, const struct tcprt_op *op, struct tcprt *out)
{
	if (m->side == TCPRT_PEER) {
		if (m->stage != STAGE_RESPONSE)
			return false;
		tcprt_answered(m, op, out);
		return true;
	}
	if (m->stage == STAGE_NONE)
		return false;
	if (m->stage == STAGE_REQUEST) {
		tcprt_record(m, op, TCPRT_N, out);
		out->sent_bytes = out->v6_sent_bytes = 0;
		out->received_bytes = tcprt_forward(m->received_seq, m->request_rcv);
		out->v6_received_bytes = op->rcv_nxt - m->start_rcv;
		return true;
	}
	if (tcprt_apart(op->snd_nxt, m->start_seq) <= 1)
		return false;
	if (tcprt_apart(op->snd_nxt, op->snd_una) > 1) {
		tcprt_response(m, op, TCPRT_W, 0, out);
		return true;
	}
	tcprt_v6_acked(m, op);
	tcprt_acked(m, op);
	tcprt_response(m, op, TCPRT_R, 1, out);
	return true;
}

/* The end of the connection. */
static __always_inline void tcprt_close(const struct tcprt_machine *m, const struct tcprt_op *op, struct tcprt *out)
{
	tcprt_record(m, op, TCPRT_E, out);
	out->sent_bytes = m->sent_bytes;
	out->v6_sent_bytes = op->snd_nxt - m->con_seq;
	out->received_bytes = m->received_bytes;
	out->v6_received_bytes = op->rcv_nxt - m->con_rcv;
}

#endif
