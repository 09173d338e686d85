// SPDX-License-Identifier: GPL-2.0
/* exchange_hash.bpf.c: exchange.bpf.c for kernels that give tracing programs no socket storage (storage.bpf.h). */
#define CONNECTIONS_IN_HASH
#include "exchange.bpf.c"
