/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * events.h: the only definition of every record and map value that crosses between kernel and user space.
 * `make gen` turns the BTF of the compiled object into probe-image/latencyprobe_agent/vocabulary/records.py;
 * nobody types an offset. Rules: fixed-width types, widest first, explicit _pad, size a multiple of 8.
 */
#ifndef LATENCYPROBE_EVENTS_H
#define LATENCYPROBE_EVENTS_H

enum lp_limits {
	LP_THRESHOLDS = 8,	    /* of a target, docs/design/directory.md, "Rules and target sets" */
	LP_STAGES = 4,		    /* stages of one half, docs/design/measurement.md, "Stages" */
	LP_HISTOGRAM_SCALE = 5,	    /* 32 buckets per power of two: quantiles within 1.1 % */
	LP_HISTOGRAM_MIN = -672,    /* index of the first bucket: 2^(-672/32) s = 477 ns; shorter ones land in it */
	LP_HISTOGRAM_BUCKETS = 992, /* 31 powers of two: up to 2^10 s = 17 min; longer ones land in the last */
	LP_STACK_FRAMES = 48,	    /* of a kernel stack; an ACK that arrives inside a send call makes some 45 */
	LP_WINDOW_SHIFT = 27,	    /* windows in which records are counted against their limit: 134 ms */
	LP_BURST_WINDOWS = 15, /* worth of records that may come at once before they are sampled: 2 s at the limit */
	LP_SAMPLING_LEVEL_SHIFT = 27, /* exchange.flags above it: one of 2^level such exchanges sent its record */
	LP_SAMPLING_LEVEL_MAX = 31,
	LP_SCOPE_FILTER_WORDS = 1024,	     /* of 64 bits: with 1,000 cgroups in `scopes`, 1.5 % of the others pass */
	LP_SCOPE_FILTER_FACTOR = 0x61c88647, /* 2^32 over the golden ratio: spreads numbers that follow each other */
	LP_WAIT_FRAMES = 127,		     /* of a kernel stack: as many as the kernel unwinds by default */
	LP_USER_FRAMES = 64,	   /* of a user stack in a record of waits: more than a span has room to name */
	LP_WAIT_CALLS = 8,	   /* system calls that a request's split tells apart */
	LP_SYSCALLS = 512,	   /* numbers of system calls in the map `call_kinds`; x86-64 has 470, arm64 fewer */
	LP_WAITS_PER_SECOND = 200, /* records of a target set and kind; a second is 2^30 ns */
	LP_TRACKED_FRAMES = 127,   /* of a stack of a tracker: as deep as the kernel walks by default */
	LP_SYSCALL_WORDS = 8,	   /* of 64 bits: one for each system call */
	LP_KEY_DUPLICATES = 16,	   /* of one key of a tracker */
	LP_SHARDS = 32,		   /* of the counts of a key at most, however many CPUs there are */
	LP_COUNTS_SLOTS = 32768,   /* LP_SHARDS of each of 1,024 keys */
};

/* How the calls on a connection are told from each other, docs/design/http2.md. */
enum protocol {
	PROTOCOL_TURNS = 0,
	PROTOCOL_HTTP2 = 1, /* by stream; by turns where a connection is none of HTTP/2 */
};

/* Who initiated the connection. */
enum role {
	ROLE_UNKNOWN = 0,
	ROLE_CLIENT = 1,
	ROLE_SERVER = 2,
};

/* Class of the connection when the exchange ended, docs/design/measurement.md, "Classes". */
enum exchange_class {
	CLASS_UNKNOWN = 0,
	CLASS_PINGPONG = 1,
	CLASS_STREAM = 2,
	CLASS_PIPELINED = 3,
	CLASS_MULTIPLEXED = 4,
	CLASS_PUSH = 5,
	CLASS_SETUP = 6,
	CLASS_TEARDOWN = 7,
	CLASS_UNSUPPORTED = 8,
	CLASS_ONEWAY = 9,
	CLASS_STREAMING = 10,
	CLASS_PEER = 11,
	CLASS_UNARY = 12, /* a call of HTTP/2: one stream, an answer in one piece */
	CLASS_COUNT = 13,
};

/* How the exchange ended. */
enum outcome {
	OUTCOME_OK = 0,
	OUTCOME_RESET = 1,	  /* RST inside the exchange */
	OUTCOME_TIMED_OUT = 2,	  /* ETIMEDOUT inside the exchange */
	OUTCOME_UNREACHABLE = 3,  /* EHOSTUNREACH, ENETUNREACH inside the exchange */
	OUTCOME_ABORTED = 4,	  /* the client gave up, or this end sent a RST in its request */
	OUTCOME_OTHER = 5,	  /* another socket error */
	OUTCOME_UNANSWERED = 6,	  /* the server ended the connection without an answer */
	OUTCOME_STREAM_RESET = 7, /* HTTP/2: RST_STREAM of either end, before the answer was whole */
	OUTCOME_COUNT = 8,
};

/* Why an exchange is no SLI event. EXCLUDED_NONE: it is one. */
enum excluded {
	EXCLUDED_NONE = 0,
	EXCLUDED_SETUP = 1,
	EXCLUDED_TEARDOWN = 2,
	EXCLUDED_PUSH = 3,
	EXCLUDED_PARTIAL = 4, /* first exchange of an adopted connection */
	EXCLUDED_OVERLAP = 5, /* one overlapped turn on a connection that otherwise takes turns */
	EXCLUDED_PIPELINED = 6,
	EXCLUDED_MULTIPLEXED = 7,
	EXCLUDED_TFO = 8, /* data in the SYN: no stamp of its first byte */
	EXCLUDED_UNSUPPORTED = 9,
	EXCLUDED_STREAMING = 10,   /* the response went on after silence */
	EXCLUDED_PLAN = 11,	   /* the plan dropped the target while the exchange was open */
	EXCLUDED_OWN = 12,	   /* the agent's own connection */
	EXCLUDED_ONEWAY = 13,	   /* read, never answered, and the client went on after silence */
	EXCLUDED_PEER = 14,	   /* pods of one application among themselves */
	EXCLUDED_OUT_OF_STEP = 15, /* HTTP/2: the place of the frames was lost while the stream was open */
	EXCLUDED_COUNT = 16,
};

/* Why a record or a count never arrived. One per-CPU counter each in the map `lost`. */
enum lost {
	LOST_RING_FULL = 0,   /* record refused by the ring; counts are intact */
	LOST_COUNTS_FULL = 1, /* no room for (target set, role, owner): counted under owner 0 instead */
	LOST_COUNTS = 2,      /* not even owner 0: the exchange is in no count */
	LOST_STORAGE = 3,     /* no socket storage: a message of a connection that is not measured */
	LOST_RECURSION = 4,   /* firing in another's way; user space adds bpf_prog_info.recursion_misses */
	LOST_STATE = 5,	      /* no room to follow one more handshake, or thread */
	LOST_LIMIT = 6,	      /* above the limit of records of its target set (waits) */
	LOST_THROTTLED = 7,   /* its namespace had its share of a ring that was more than half full */
	LOST_UNSEEN_END = 8,  /* a connection whose end no program saw; user space adds it, from enum census */
	LOST_COUNT = 9,
};

/* Connections that are followed. One per-CPU counter each in the map `census`. */
enum census {
	CENSUS_BEGUN = 0,
	CENSUS_ENDED = 1,
	CENSUS_FOUND = 2, /* by the flush, each time */
	CENSUS_COUNT = 3,
};

enum exchange_flags {
	FLAG_BACKLOG = 1 << 1,		/* a ready stamp was taken in release_sock */
	FLAG_READ_APPROX = 1 << 2,	/* copied_seq moved without a receive call */
	FLAG_LOWAT = 1 << 3,		/* SO_RCVLOWAT > 1: data-ready comes late */
	FLAG_RECEIVER_LIMITED = 1 << 4, /* advertised window reached 0 */
	FLAG_SEND_APPROX = 1 << 5,	/* send_end or send_start missing: taken from the nearest hook */
	FLAG_OVERLAP = 1 << 6,		/* turns overlapped in this exchange */
	FLAG_MAYBE_CUT = 1 << 7,	/* ended by the idle timeout, not by the next request or a close */
	FLAG_FRESH = 1 << 8,		/* first exchange of a connection seen from its handshake */
	FLAG_CLOSED = 1 << 9,		/* ended by the connection's close */
	FLAG_STAGE_OVERLAP = 1 << 10,	/* a stamp lay before its predecessor */
	FLAG_READY_APPROX = 1 << 11,	/* data was read before any data-ready was seen */
	FLAG_SUSPENDED = 1 << 13,	/* the host slept meanwhile: added by user space, which knows when */
	FLAG_REQUEST_RESUMED = 1 << 14, /* what the client had sent before it paused was one-way, or part of this */
};

/* Why bytes were still in their socket when the last send call of a message had returned: exchange_unsent.bpf.h. */
enum unsent_reason {
	UNSENT_NONE = 0,
	UNSENT_NAGLE = 1,
	UNSENT_CORK = 2,   /* TCP_CORK, MSG_MORE */
	UNSENT_WINDOW = 3, /* the peer's receive window */
	UNSENT_CWND = 4,   /* the congestion window */
	UNSENT_PACING = 5, /* the rest: pacing, and small queues */
};

/* What exchange.held_ns is of the time that these bytes were held. */
enum held_bound {
	HELD_EXACT = 0,	   /* to a microsecond */
	HELD_AT_MOST = 1,  /* when they left is not known, but that they had by then */
	HELD_AT_LEAST = 2, /* they had not left when the exchange ended */
};

/*
 * One half of an exchange. Stamps: ns of CLOCK_BOOTTIME, 0 = not taken. Addresses: IPv6 or IPv4-mapped.
 * Offsets: 64-bit position of the first byte in its direction's byte stream. Of a call of HTTP/2 a message is the frames
 * of its stream, and bytes are theirs, headers of 9 bytes included. Ring `exchanges`.
 */
struct exchange {
	__u64 sock_cookie;
	__u64 cgroup_id;
	__u64 send_start_ns; /* client: of the request; server: of the response */
	__u64 send_end_ns;
	__u64 ready_first_ns; /* client: of the response; server: of the request */
	__u64 ready_last_ns;
	__u64 read_first_ns;
	__u64 read_last_ns;
	__u64 request_offset;
	__u64 response_offset;
	__u64 request_bytes;
	__u64 response_bytes;
	__u64 held_ns; /* how long its last byte waited to be sent, after send_end_ns */
	__u8 local_addr[16];
	__u8 peer_addr[16];
	__u32 request_seq;
	__u32 response_seq;
	__u32 netns_ino;
	__u32 target_set;
	__u32 srtt_us;	   /* smoothed RTT at the end, 0 = no sample */
	__u32 rtt_min_us;  /* 0xffffffff = no sample */
	__u32 retransmits; /* segments this end sent again during the exchange */
	__u32 reader_tgid; /* last reader, first writer */
	__u32 reader_tid;
	__u32 writer_tgid;
	__u32 writer_tid;
	__u32 flags; /* enum exchange_flags, and above LP_SAMPLING_LEVEL_SHIFT the level */
	__u32 send_calls;
	__u32 recv_calls;
	__u32 unsent_bytes;  /* the most that a send call of this end's message left in its socket */
	__u32 stream_id;     /* of HTTP/2; 0: a turn of the connection */
	__u32 request_until; /* of a stream, between whose frames are others': the sequence number after the last byte */
	__u32 response_until;
	__u16 local_port;
	__u16 peer_port;
	__u8 role;
	__u8 conn_class; /* enum exchange_class */
	__u8 outcome;
	__u8 excluded;
	__u8 unsent_reason; /* UNSENT_NONE: nothing was unsent, and held_ns and unsent_bytes are 0 */
	__u8 held_bound;
	__u8 _pad[6];
};
_Static_assert(sizeof(struct exchange) == 224, "struct exchange has no hidden padding");

/* Key of `streams`. */
struct stream_key {
	__u64 cookie;
	__u32 id;
	__u32 _pad;
};
_Static_assert(sizeof(struct stream_key) == 16, "struct stream_key has no hidden padding");

/* Changed by atomic operations alone. */
enum stream_state {
	STREAM_REQUEST_ENDED = 1 << 0, /* sent, or read, to its last byte */
	STREAM_ANSWER_ENDED = 1 << 1,
	STREAM_SENDING = 1 << 2, /* the last bytes of this end's message are with a send call, which will change it */
	STREAM_RESET = 1 << 3,
	STREAM_CLOSED = 1 << 4, /* it is accounted for */
};

enum stream_flags {
	STREAM_ANSWERED = 1 << 0,  /* the answer has begun */
	STREAM_DATA = 1 << 1,	   /* the answer has DATA: its next HEADERS are trailers */
	STREAM_STREAMING = 1 << 2, /* no call with one answer */
};

/* An open stream of HTTP/2, value of `streams`: what is known of its exchange so far. */
struct stream {
	struct exchange x;
	__u64 answer_ns; /* when the answer's last frame was sent, or had arrived */
	__u64 reset_ns;
	__u32 disturbed;   /* at answer_ns: segments sent again, and out of order, so far */
	__u32 retransmits; /* of the connection, when it opened */
	__u32 state;	   /* enum stream_state */
	__u32 flags;	   /* enum stream_flags */
};
_Static_assert(sizeof(struct stream) == 256, "struct stream has no hidden padding");

/* Signals that explain exchanges, docs/design/evidence.md. Each is an object of its own, with a ring of its own. */
enum evidence_flags {
	EVIDENCE_RETRANSMITS = 1 << 0,
	EVIDENCE_HANDSHAKES = 1 << 1,
	EVIDENCE_TCPRT = 1 << 2,
	EVIDENCE_SYSCALLS = 1 << 3, /* waits in system calls; one signal with the next, struct wait */
	EVIDENCE_OFFCPU = 1 << 4,   /* waits for a CPU */
};

/*
 * What every record of evidence begins with: whose socket it was. Addresses as in struct exchange, as they were when
 * the connection was established. owner: last task known to have sent, connected or read on it, 0 = unknown; never the
 * task that a softirq interrupted. target_set: 0 for a tool, which has no plan.
 */
struct flow_header {
	__u64 boot_ns;
	__u64 sock_cookie;
	__u64 cgroup_id;
	__u8 local_addr[16];
	__u8 peer_addr[16];
	__u32 netns_ino;
	__u32 target_set;
	__u32 owner_tgid;
	__u32 owner_tid;
	__u8 owner_comm[16];
	__u16 local_port;
	__u16 peer_port;
	__u8 family; /* 4 or 6; IPv4-mapped is 4 */
	__u8 role;
	__u8 _pad[2];
};
_Static_assert(sizeof(struct flow_header) == 96, "struct flow_header has no hidden padding");

enum evidence_mode {
	MATCH_PLAN = 0,	  /* sockets of targets that ask for the signal */
	MATCH_FILTER = 1, /* sockets that the filter lets through: a tool */
};

/* The one entry of the array `evidence_filter`. A field of 0 lets everything through; port and addr: of either end. */
struct evidence_filter {
	__u64 cgroup_id;
	__u8 addr[16];
	__u32 tgid;
	__u16 port;
	__u8 family; /* 4 or 6 */
	__u8 mode;   /* enum evidence_mode */
};
_Static_assert(sizeof(struct evidence_filter) == 32, "struct evidence_filter has no hidden padding");

enum retransmit_kind {
	RETRANSMIT_SEGMENT = 1, /* an attempt of a full socket, SYN and FIN included */
	RETRANSMIT_SYNACK = 2,	/* of a connection that is no socket yet */
	RETRANSMIT_PROBE = 3, /* the loss-probe timer fired; what it sent again, if anything, is a record of its own */
	RETRANSMIT_UNDO = 4,  /* TCP found its last recovery needless: `segs` had been sent again in it for nothing */
	RETRANSMIT_SENT = 5,  /* nothing but the counters, for a tool: at close, and when the peer reports duplicates */
};

/* Switches of a tool, the one entry of the array `retransmit_options`. */
enum retransmit_option_flags {
	RETRANSMIT_OPTION_STACKS = 1 << 0, /* records go to the ring `stacks`, as struct retransmit_stack */
	RETRANSMIT_OPTION_PROBES = 1 << 1, /* loss-probe attempts too */
};

/*
 * TCP sent again, docs/design/evidence.md, "Retransmits". Raw fields of the socket at the event; `reason` is derived
 * from them in user space (signals/retransmits.py), so that the rule can be run again over old records. Values of enums
 * and bits are the kernel's own. `new_duplicates`: since the last record of the same socket. Ring `retransmits`.
 */
struct retransmit {
	struct flow_header flow;
	__u64 inode; /* of the socket in /proc/PID/fd, 0 = no process holds it */
	__u64 bytes_retrans;
	__u64 bytes_sent;     /* retransmits included */
	__u32 new_duplicates; /* segments that the peer reported as received twice, by DSACK */
	__u32 seq;
	__u32 end_seq;
	__u32 segs;
	__u32 len; /* bytes */
	__u32 nth; /* how often this range was sent again so far; 0 = not known, or the attempt failed */
	__u32 rto_jiffies;
	__u32 total_retrans; /* segments */
	__u32 data_segs_out;
	__u32 undo_marker;
	__u32 snd_cwnd;
	__u32 snd_ssthresh;
	__u32 snd_wnd;
	__u32 srtt_us;
	__u32 dsack_dups;
	__s32 err; /* of the attempt: 0 or -errno, only where the kernel passes it */
	__u16 tcp_flags;
	__u8 kind;	/* enum retransmit_kind */
	__u8 tcp_state; /* 12: a request socket */
	__u8 ca_state;
	__u8 icsk_pending;
	__u8 icsk_retransmits;
	__u8 backoff;
	__u8 sacked;
	__u8 in_process; /* the current task was the owner, at work on this socket */
	__u8 _pad[6];
};
_Static_assert(sizeof(struct retransmit) == 200, "struct retransmit has no hidden padding");

/* With RETRANSMIT_OPTION_STACKS. Unused frames are 0. Ring `stacks`. */
struct retransmit_stack {
	struct retransmit retransmit;
	__u64 stack[LP_STACK_FRAMES];
};

/* How the opening of a connection was measured. */
enum handshake_method {
	METHOD_KERNEL = 0, /* the kernel's own RTT sample, where the socket changes its state */
	METHOD_TC = 1,	   /* times of the packets, at a network interface */
};

/* How the opening of a connection ended, docs/design/evidence.md, "Handshake outcomes". */
enum connect_outcome {
	CONNECT_OK = 0,
	CONNECT_REFUSED = 1,
	CONNECT_UNREACHABLE = 2,
	CONNECT_TIMEOUT = 3,
	CONNECT_SIMULTANEOUS = 4, /* established, both ends having sent a SYN */
	CONNECT_ABORTED = 5,	  /* its own side gave up */
	CONNECT_OTHER = 6,	  /* another socket error; no port left, when no SYN was sent */
	CONNECT_COUNT = 7,
};

enum handshake_flags {
	HANDSHAKE_AMBIGUOUS = 1 << 0,  /* which packet was answered is not known: rtt_ns is 0 */
	HANDSHAKE_TIMESTAMPS = 1 << 1, /* of several packets, TCP timestamps show which was answered */
	HANDSHAKE_PARTIAL = 1 << 2,    /* its beginning was not seen */
};

/* What METHOD_TC saw and reported nowhere. One per-CPU counter each in the map `tally`. */
enum handshake_tally {
	TALLY_SYNACK_UNKNOWN = 0,     /* answers no SYN that was seen */
	TALLY_SYNACK_RETRANSMITS = 1, /* came again, after the one that was reported */
	TALLY_SYNACK_MISMATCHED = 2,  /* acknowledges another SYN of the same addresses and ports */
	TALLY_REPLACED = 3,	      /* a new SYN of the same addresses and ports came before an answer */
	TALLY_COUNT = 4,
};

/*
 * One opened connection, or one that failed to open. RTT: client, SYN to SYN-ACK; server, SYN-ACK to ACK. With
 * HANDSHAKE_AMBIGUOUS it lies between rtt_min_ns and rtt_max_ns, 0 = no bound. flow.boot_ns: end. Ring `handshakes`.
 */
struct handshake {
	struct flow_header flow;
	__u64 rtt_ns; /* 0 = none */
	__u64 rtt_min_ns;
	__u64 rtt_max_ns;
	__u64 connect_ns; /* client, METHOD_KERNEL: what the application waited; 0 = not known */
	__u32 client_isn;
	__u32 server_isn;
	__u32 n_syn; /* 0 = not known */
	__u32 synack_retransmits;
	__u32 flags;   /* enum handshake_flags */
	__u32 ifindex; /* METHOD_TC */
	__u8 method;
	__u8 outcome; /* enum connect_outcome */
	__u8 _pad[6];
};
_Static_assert(sizeof(struct handshake) == 160, "struct handshake has no hidden padding");

/* Records of TCP-RT, docs/design/evidence.md, "TCP-RT". */
enum tcprt_kind {
	TCPRT_R = 0, /* local side: a task is done */
	TCPRT_P = 1, /* peer side: a task is done */
	TCPRT_N = 2, /* closed in the middle of a request */
	TCPRT_W = 3, /* closed before the response was acknowledged */
	TCPRT_E = 4, /* the connection is closed */
};

enum tcprt_side {
	TCPRT_LOCAL = 1, /* this end serves */
	TCPRT_PEER = 2,	 /* this end asks */
};

enum tcprt_flags {
	TCPRT_REORDER = 1 << 0, /* data of the message came out of order */
	TCPRT_PARTIAL = 1 << 1, /* connection adopted in its middle */
};

/*
 * One task, or the end of a connection (E). Bytes are those of the task, of E all payload of the connection; seq to
 * end_seq is what this end sent in it. Where the original errs, v6_* repeat it: docs/design/evidence.md, "TCP-RT
 * deviations". flow.boot_ns is end_ns: R: ACK of the last response byte, P: last response byte, others: when it was
 * emitted. Ring `tcprts`.
 */
struct tcprt {
	struct flow_header flow;
	__u64 start_ns;
	__u64 end_ns;
	__u64 v6_end_ns;
	__u64 server_us;
	__u64 recv_us;
	__u64 sent_bytes;
	__u64 received_bytes;
	__u32 v6_sent_bytes;
	__u32 v6_received_bytes;
	__u32 unacked_bytes;
	__u32 v6_unacked_bytes;
	__u32 seq;
	__u32 end_seq;
	__u32 task_no;	   /* of E: tasks of the connection */
	__u32 retransmits; /* segments; of E without those of the handshake */
	__u32 handshake_retransmits;
	__u32 min_rtt_us; /* 0xffffffff = no sample */
	__u32 mss;
	__u8 kind; /* enum tcprt_kind */
	__u8 side; /* enum tcprt_side */
	__u8 flags;
	__u8 conn_class; /* enum exchange_class of the last exchange, CLASS_UNKNOWN for a tool */
};
_Static_assert(sizeof(struct tcprt) == 200, "struct tcprt has no hidden padding");

/* In the array `newest`, after a lock: a record and its number among those of its CPU, from 1. */
struct newest_record {
	__u64 number;
	struct tcprt record;
};

/* In the array `newest_heads`, one per CPU, after a lock. slots: 0 unless records go to `newest`. */
struct newest_head {
	__u64 written;
	__u32 slots;
	__u32 _pad;
};

enum wait_kind {
	WAIT_SERVED = 1, /* the split of one request: from its last read to the first byte of its answer */
	WAIT_ONE = 2,	 /* one wait of a thread */
};

/* In place of a number of a system call. */
enum wait_nr {
	WAIT_NR_FAULT = -1,   /* in no call: for a page */
	WAIT_NR_FOREIGN = -2, /* a call of another ABI: its number has another meaning */
	WAIT_NR_STOPPED = -3, /* stopped by a signal, a debugger or the freezer */
	WAIT_NR_NONE = -4,    /* it did not mean to wait */
};

/* What a call is for a thread that serves nobody: of the map `call_kinds`, by number. */
enum call_kind {
	CALL_UNKNOWN = 0, /* nobody has said so yet: as idle */
	CALL_IDLE = 1,	  /* an interruptible wait in it is one for work */
	CALL_WORK = 2,
};

enum wait_flags {
	WAIT_TRUNCATED = 1 << 0, /* the stack may have more frames */
	WAIT_PREEMPTED =
		1 << 1,	       /* the thread did not mean to wait: another one had the CPU, or the quota was used up */
	WAIT_SERVING = 1 << 2, /* the thread had read the request of `flow.sock_cookie` and no other */
	WAIT_USER_COMPLETE = 1 << 3,  /* the walk reached the frame with which the thread began */
	WAIT_WAKER_COMPLETE = 1 << 4, /* the same of its waker's */
};

/* What ended a wait in a call. */
enum waker_kind {
	WAKER_UNKNOWN = 0,   /* nobody asked, or it was not seen */
	WAKER_THREAD = 1,    /* another thread of the process */
	WAKER_PROCESS = 2,   /* a thread of another process of its cgroup */
	WAKER_KERNEL = 3,    /* a thread of the kernel */
	WAKER_OUTSIDE = 4,   /* a thread of another cgroup, of which nothing is told */
	WAKER_INTERRUPT = 5, /* no thread: a timer, a device, what came from the network */
};

/* Who woke a thread; but for THREAD, PROCESS and KERNEL all but `kind` is 0. */
struct waker {
	__u8 comm[16];
	__u32 tgid;
	__u32 tid;
	__u8 kind; /* enum waker_kind */
	__u8 _pad[7];
};
_Static_assert(sizeof(struct waker) == 32, "struct waker has no hidden padding");

/* How much is known of a request that was slower than the threshold. */
enum served {
	SERVED_SPLIT = 0,	/* its record tells where the time went */
	SERVED_AMBIGUOUS = 1,	/* its thread had read another request before the answer */
	SERVED_HANDED_OVER = 2, /* answered by another thread than read it */
	SERVED_UNSEEN = 3,	/* the thread was switched without a firing */
	SERVED_COUNT = 4,
};

/* Whom a wait may explain. */
enum waiter {
	WAITER_THREAD = 0,    /* the request that the thread serves */
	WAITER_PROCESS = 1,   /* the only one that the process had meanwhile */
	WAITER_AMBIGUOUS = 2, /* one of several */
	WAITER_NOBODY = 3,
	WAITER_COUNT = 4,
};

/*
 * Why `process` was long, docs/design/evidence.md, "Waits". Of a request (WAIT_SERVED) or of one wait (WAIT_ONE), which
 * lasted from start_ns to flow.boot_ns = start_ns + on_cpu_ns + ready_ns + blocked_ns; blocked_ns = sum(call_ns) +
 * other_ns. Of one wait call_nr[0] is the call, flow.owner_* the thread. Ring `waits`.
 */
struct wait {
	struct flow_header flow;
	__u64 start_ns;
	__u64 on_cpu_ns;
	__u64 ready_ns;	    /* could have run */
	__u64 throttled_ns; /* of it, at most: its CPU quota was used up */
	__u64 preempted_ns; /* of the rest: it had not blocked */
	__u64 blocked_ns;
	__u64 call_ns[LP_WAIT_CALLS];
	__u64 other_ns;			 /* blocked in more calls than these */
	__s32 call_nr[LP_WAIT_CALLS];	 /* or enum wait_nr */
	__u32 call_count[LP_WAIT_CALLS]; /* waits in it; 0: unused */
	__u32 seq;			 /* WAIT_SERVED: of the answer's first byte */
	__u32 state;			 /* WAIT_ONE: the kernel's, when it left the CPU; 0: it could have run on */
	__u8 kind;			 /* enum wait_kind */
	__u8 flags;			 /* enum wait_flags */
	__u8 waiter;			 /* enum waiter */
	__u8 frames;			 /* of the stack */
	__u8 user_frames;
	__u8 waker_frames;
	__u8 _pad[2];
	struct waker waker; /* WAIT_ONE: of this wait; WAIT_SERVED: of the longest one for a futex that has one */
	__u64 waker_ns;	    /* WAIT_SERVED: how long that was; 0: there is none */
	/* WAIT_ONE, innermost first; what follows the number of frames is undefined */
	__u64 stack[LP_WAIT_FRAMES];	   /* the kernel's, at the end of the wait */
	__u64 user_stack[LP_USER_FRAMES];  /* of the thread, as it began */
	__u64 waker_stack[LP_USER_FRAMES]; /* user stack of WAKER_THREAD and WAKER_PROCESS */
};
_Static_assert(sizeof(struct wait) == 96 + 15 * 8 + 8 * 8 + 16 + 40 + (LP_WAIT_FRAMES + 2 * LP_USER_FRAMES) * 8,
	       "struct wait has no hidden padding");

/* Whose counts they are. owner: cgroup id of the container, or the tgid with config.owner_by_process; 0 = the rest. */
struct counts_key {
	__u64 owner;
	__u32 target_set;
	__u32 role;
};
_Static_assert(sizeof(struct counts_key) == 16, "struct counts_key has no hidden padding");

/* Key of `counts` and `evidence_counts`. Every CPU adds to the entry of its shard, its number modulo LP_SHARDS. */
struct counts_slot {
	struct counts_key key;
	__u32 shard;
	__u32 _pad;
};
_Static_assert(sizeof(struct counts_slot) == 24, "struct counts_slot has no hidden padding");

/*
 * Of one shard; user space adds the shards up. All counters only grow. An *event* is an exchange that the SLI counts, so
 * events = sum(outcomes) = sum(histogram), and ended exchanges = events + sum(excluded) = sum(classes).
 * within[i]: events with duration <= thresholds_ns[i]; failed_within[i]: those of them whose outcome is not OK.
 * over_*[i][stage]: of the events slower than thresholds_ns[i]: sum of each stage, and how often it was the largest.
 */
struct exchange_counts {
	__u64 duration_sum_ns; /* of events */
	__u64 within[LP_THRESHOLDS];
	__u64 failed_within[LP_THRESHOLDS];
	__u64 outcomes[OUTCOME_COUNT]; /* of events */
	__u64 classes[CLASS_COUNT];
	__u64 excluded[EXCLUDED_COUNT];
	__u64 lost_records;	   /* of this key, ring full */
	__u64 sampled_out_records; /* of this key, above config.records_per_window */
	__u64 over_stage_ns[LP_THRESHOLDS][LP_STAGES];
	__u64 over_dominant[LP_THRESHOLDS][LP_STAGES];
	__u32 histogram[LP_HISTOGRAM_BUCKETS]; /* durations of events; wraps, read as differences */
};

/*
 * Of one shard, in the map `evidence_counts` of each signal: what it counts beside its records, exact whatever becomes of
 * these. A signal leaves what is another's at 0. All counters only grow.
 */
struct evidence_counts {
	__u64 lost_records;		  /* of this key, ring full */
	__u64 connections[CONNECT_COUNT]; /* handshakes: opened or failed to, by outcome */
	__u64 ambiguous;		  /* handshakes: of these, the RTT is not known */
	__u64 segs_sent;		  /* retransmits: with data, what was sent again included */
	__u64 bytes_sent;
	__u64 segs_retrans; /* SYN, SYN-ACK and FIN included */
	__u64 bytes_retrans;
	__u64 segs_unrecorded;	    /* of segs_retrans: in no record that was delivered */
	__u64 duplicates;	    /* segments that the peer reported as received twice, but for those of `undone` */
	__u64 undone;		    /* segments of recoveries that TCP found needless */
	__u64 served[SERVED_COUNT]; /* waits: requests that were slower than the threshold, by how much is known */
	__u64 waits[WAITER_COUNT];  /* waits: those longer than it, by whom they may explain */
};

/* Value of the array `target_sets`, index 1.. (0 = no target). Unused thresholds are 0. */
struct target_set {
	__u64 thresholds_ns[LP_THRESHOLDS];
	__u64 slow_ns;	      /* an exchange that takes longer sends its record in any case */
	__u64 pause_ns;	      /* without a byte either way, after which a message is no part of the turn before it */
	__u32 setup_turns;    /* those of TLS included */
	__u32 evidence;	      /* enum evidence_flags: signals that a target of the set asks for */
	__u64 slow_call_ns;   /* EVIDENCE_SYSCALLS: waits in calls that are longer send their record */
	__u64 slow_offcpu_ns; /* EVIDENCE_OFFCPU: waits for a CPU that are longer */
	__u32 wait_stacks;    /* enum stack_option_flags: STACKS_KERNEL, STACKS_USER */
	__u32 protocol;	      /* enum protocol */
	__u32 tls;	      /* 1: its connections are TLS's */
	__u32 share;	      /* its namespace's, of the ring: index into `shares` and `streams_of` */
};

/* Value of `scopes`, key: cgroup id. Groups index `rules`; 0 = no rules on that side. */
struct scope {
	__u32 server_group;
	__u32 client_group;
};

/*
 * The one entry of the array `scope_filter`. Bit of a cgroup: the upper half of its id times LP_SCOPE_FILTER_FACTOR, in
 * 32 bits. Set for those in `scopes`, all of them with a host scope; where it is not, a socket is nobody's.
 */
struct scope_filter {
	__u64 words[LP_SCOPE_FILTER_WORDS];
};

enum rule_side {
	SIDE_LOCAL = 0,	 /* local port: this end is the server */
	SIDE_PEER = 1,	 /* peer port: this end is the client */
	SIDE_MEMBER = 2, /* peer address, the server's port, server group: a replica; its traffic is EXCLUDED_PEER */
};

/* Key of `rules`, value: __u32 index of a target set, of SIDE_MEMBER any but 0. addr all zero: any address. port 0: any port. */
struct rule_key {
	__u8 addr[16];
	__u32 group;
	__u16 port;
	__u8 side;
	__u8 _pad;
};
_Static_assert(sizeof(struct rule_key) == 24, "struct rule_key has no hidden padding");

/* The one entry of the array `config`. */
struct config {
	__u64 generation;	  /* of the plan; sockets decided under another one are decided again */
	__u64 idle_timeout_ns;	  /* without traffic, after which the flush ends a complete exchange */
	__u64 boot_offset_ns;	  /* boot time less monotonic time, which programs read faster; a suspend adds to it */
	__u64 answer_timeout_ns;  /* after which a handshake that nobody answered has failed (tc) */
	struct scope host;	  /* rules for sockets of cgroups not in `scopes` (standalone); 0, 0 = none */
	__u32 own_tgid;		  /* the agent's process (in the root PID namespace): what it dials is excluded */
	__u32 owner_by_process;	  /* counts_key.owner is the tgid */
	__u32 wakeup_bytes;	  /* ring fill at which the reader is woken before its interval ends */
	__u32 records_per_window; /* of 2^LP_WINDOW_SHIFT ns, neither slow nor failed; 0 = no limit. Above, a sample */
	__u32 share_records;	  /* of a namespace in such a window, of the second half of the ring; 0 = no limit */
	__u32 _pad;
};

/* Trackers: how long something took that began and ended, docs/design/tracker.md. Each row is an object of its own. */
enum tracker {
	TRACKER_SYSCALLS = 1,
	TRACKER_OFFCPU = 2,
	TRACKER_WAKEUP = 3,
	TRACKER_TTFB = 4,
	TRACKER_NET = 5,
	TRACKER_RECORDER = 6,
};

/* What a record tells of. */
enum tracked_flag {
	TRACKED_NORMAL = 0,
	TRACKED_TIMEOUT = 1, /* still open after knobs.timeout_ns: duration so far; its end is told as well */
	TRACKED_UNIQUE = 2,  /* defined by the original, delivered by neither */
	TRACKED_GC = 3,	     /* open for longer than knobs.gc_threshold_ns, and removed */
	TRACKED_LET_GO = 4,  /* ended, and not reported: only its stacks are to be let go of */
	TRACKED_WAKER = 5,   /* offcpu: who wakes the task of payload[0]; comm, tgid and tid are the waker's */
};

/* What becomes of an attempt to begin; only counted ones are a loss. */
enum begun {
	BEGUN_OK = 0,
	BEGUN_FULL = 1, /* no room: TOLD_SKIPPED. An older entry is never evicted */
	BEGUN_ERR = 2,
	BEGUN_ERR_TIMEOUT = 3, /* defined by the original; nothing here sets a timer */
	BEGUN_DISABLED = 4,    /* knobs.tracking_on is 0 */
};

/* Why a task left its processor. */
enum offcpu_reason {
	OFFCPU_PREEMPTED = 0, /* it could have gone on */
	OFFCPU_INTERRUPTIBLE = 1,
	OFFCPU_DISK = 2,      /* uninterruptible: mostly the disk, or a lock inside the kernel */
	OFFCPU_OTHER = 3,     /* stopped, traced, idle, or what else there is */
	OFFCPU_THROTTLED = 4, /* as known at its end: mostly for a CPU, and that mostly for its quota */
	OFFCPU_COUNT = 5,
};

/* What a tracker has to tell beside its records. One per-CPU counter each in the map `told`. */
enum told {
	TOLD_SKIPPED = 0,   /* entries refused: the table is full */
	TOLD_REPLACED = 1,  /* entries that began again before they had ended */
	TOLD_COLLECTED = 2, /* entries removed by TRACKED_GC */
	TOLD_TIMEOUTS = 3,
	TOLD_RATE_LIMITED = 4,	 /* records above knobs.records_per_second */
	TOLD_STACKS_LIMITED = 5, /* stacks above knobs.stacks_per_second */
	TOLD_STACKS_LOST = 6,	 /* stacks that their ring refused, or that could not be taken */
	TOLD_UNCOVERED = 7,	 /* ttfb: accepts asked of io_uring, which are not followed */
	TOLD_COUNT = 8,
};

/* Which stacks are taken: knobs.stacks. */
enum stack_option_flags {
	STACKS_KERNEL = 1 << 0,
	STACKS_USER = 1 << 1,
	STACKS_WAKER = 1 << 2,
};

enum stack_kind {
	STACK_KERNEL = 0,
	STACK_USER = 1,
	STACK_WAKER = 2, /* kernel stack of who wakes the task */
};

enum stack_walk_flags {
	WALK_COMPLETE = 1 << 0,	 /* it reached the frame that the thread began with */
	WALK_TRUNCATED = 1 << 1, /* there were more than LP_TRACKED_FRAMES */
};

/* The one entry of the array `knobs`, read at each event. A filter of 0 lets everything through. */
struct tracker_knobs {
	__u64 threshold_ns;		  /* what takes longer, and only that, has a record */
	__u64 timeout_ns;		  /* 0 = none */
	__u64 gc_threshold_ns;		  /* 0 = none */
	__u64 cgroup_id;		  /* that one, and those below it */
	__u64 left_out[LP_SYSCALL_WORDS]; /* bit per system call that is not followed */
	__u8 comm[16];			  /* of the thread */
	__u32 tgid;
	__u32 own_tgid;		  /* the tracker's own process, which nothing is told of */
	__u32 records_per_second; /* 0 = no limit */
	__u32 stacks_per_second;
	__u32 wakeup_bytes; /* ring fill at which the reader is woken before its interval ends */
	__u8 tracking_on;
	__u8 worst_threshold; /* only what is worse than all before has a record */
	__u8 stacks;	      /* enum stack_option_flags */
	__u8 _pad;
	__u64 keep_above_ns; /* recorder: what takes longer, and only that, is kept */
};
_Static_assert(sizeof(struct tracker_knobs) == 144, "struct tracker_knobs has no hidden padding");

/* Per CPU in the map `statistics`, by the row's kind (system call, reason, else 0). Of all that ended. */
struct tracker_statistics {
	__u64 count;
	__u64 total_ns;
	__u64 min_ns;
	__u64 max_ns;
};

/* One that ended, or as `flag` says. Ring `tracked`. */
struct tracked {
	__u64 start_ns;
	__u64 duration_ns;
	__u64 cgroup_id; /* 0 with TIMEOUT and GC, as comm is empty */
	__s64 ret;	 /* syscalls: what it returned */
	__u64 payload[2]; /* syscalls: number, 1 = of the 32-bit table; offcpu: reason, kernel's state; WAKER: tid of the woken, 0 */
	__u32 tgid;
	__u32 tid;
	__u8 comm[16];
	__u32 stacks; /* taken while it went on, those included that were lost */
	__u8 tracker; /* enum tracker */
	__u8 flag;    /* enum tracked_flag */
	__u8 id;      /* which way it ended */
	__u8 _pad;
};
_Static_assert(sizeof(struct tracked) == 80, "struct tracked has no hidden padding");

/* A stack of what `tid` does since `start_ns`, leaf first; it comes before its record. Ring `tracked_stacks`. */
struct tracked_stack {
	__u64 start_ns;
	__u64 elapsed_ns;
	__u32 tgid;
	__u32 tid;
	__u16 frames;
	__u8 kind;  /* enum stack_kind */
	__u8 flags; /* enum stack_walk_flags */
	__u32 _pad;
	__u64 address[LP_TRACKED_FRAMES];
};
_Static_assert(sizeof(struct tracked_stack) == 1048, "struct tracked_stack has no hidden padding");

enum recorded_kind {
	RECORDED_CALL = 1,   /* a system call has ended */
	RECORDED_SWITCH = 2, /* a task leaves the processor, `other` comes */
	RECORDED_WAKEUP = 3, /* a task, or an interrupt upon it, wakes `other` */
};

enum recorded_flags {
	RECORDED_COMPAT = 1 << 0,    /* nr is of the 32-bit table */
	RECORDED_PREEMPTED = 1 << 1, /* SWITCH: it could have gone on */
	RECORDED_FOLLOWED = 1 << 2,  /* SWITCH: of who leaves, every switch is kept */
	RECORDED_OTHER_FOLLOWED = 1 << 3,
};

/* What the flight recorder keeps of a CPU, the newest ones: docs/design/tracker.md, "Flight recorder". */
struct recorded {
	__u64 time_ns;
	__u64 duration_ns; /* CALL: until time_ns */
	__s64 ret;	   /* CALL: what it returned; SWITCH: the kernel's state of who leaves */
	__u32 tgid;
	__u32 tid;
	__u32 other_tgid;
	__u32 other_tid;
	__u8 comm[16];
	__u8 other_comm[16];
	__u32 nr;   /* CALL */
	__u8 kind;  /* enum recorded_kind */
	__u8 flags; /* enum recorded_flags */
	__u16 _pad;
};
_Static_assert(sizeof(struct recorded) == 80, "struct recorded has no hidden padding");

/* In the array `newest` of the recorder, after a lock: 96 bytes with it. */
struct recorded_value {
	__u64 number;
	struct recorded record;
};

#endif
