/* SPDX-License-Identifier: GPL-2.0 */
/* tcprt_machine.c: the kernel's state machine of TCP-RT as a shared library, for test_tcprt_machine.py. */
#include <linux/types.h>
#include <stdbool.h>
#include "tcprt_machine.h"

enum { INIT, RECV_DATA, SEND_DATA, PKTS_ACKED, RELEASE };

unsigned long machine_size(void)
{
	return sizeof(struct tcprt_machine);
}

/* Apply one operation; return how many records it wrote to `out`, at most 2. */
int apply(struct tcprt_machine *m, int kind, int side, const struct tcprt_op *op, struct tcprt *out)
{
	bool ended = false;

	switch (kind) {
	case INIT:
		tcprt_init(m, op, side);
		return 0;
	case RECV_DATA:
		return tcprt_recv_data(m, op, out);
	case SEND_DATA:
		return tcprt_send_data(m, op, out);
	case PKTS_ACKED:
		tcprt_pkts_acked(m, op);
		return 0;
	}
	if (m->task_no)
		ended = tcprt_release(m, op, out);
	tcprt_close(m, op, out + ended);
	return ended + 1;
}
