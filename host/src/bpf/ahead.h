// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
// Reads ahead of a pass. A pass reads some twenty cache lines of each socket, and a second after the last one none of them is
// in a cache: one after the other, the processor waits for most of the time that a pass takes. So the sockets that come are
// looked up in the walk of the last pass, and their lines are read for no other purpose than to have them, those of several
// sockets at once.
//
// A socket of the last pass may be gone, and its memory another's. Nothing that is read here is used, but to find what else to
// read; and an address where there is no memory reads as 0 (bpf_rdonly_cast, Linux 6.2; without it a pass is slower).

#pragma once

// Sockets of a walk that are remembered: as many as are tuned, 16 bytes each. More: of the rest nothing is read ahead, and
// their part of a pass takes longer.
#define WALK_MAX 131072
// Sockets whose lines are read at once, and how far each kind of line is read ahead, in such batches.
#define BATCH 8
enum { FIRST_AHEAD = 2, LINES_AHEAD = 1 };
// So many sockets may be gone since the last pass, one after the other, until the walk is lost.
#define GONE_MAX 16

// What a visit reads, in the lowest bits of a socket's address.
enum { READS_ALL = 0, READS_QUIET = 1, READS_LITTLE = 2, READS_MASK = 3 };

// The last walk and the one that is under way, which take turns, and how far both are.
static __u64 walks[2][WALK_MAX];
static __u32 walk, walked, met;

#define HAVE(field) ((void)*(volatile __typeof__(field) *)&(field))

static __always_inline __u64 *last_walk(__u32 nth)
{
	return &walks[~walk & 1][nth & (WALK_MAX - 1)];
}

static __always_inline struct tcp_sock *socket_at(__u64 at)
{
	return bpf_rdonly_cast((void *)(at & ~(__u64)READS_MASK), bpf_core_type_id_kernel(struct tcp_sock));
}

// One field of each line.
static __always_inline void have_lines(__u64 at, __u32 mode)
{
	struct tcp_sock *tp = socket_at(at);
	struct inet_connection_sock *icsk = &tp->inet_conn;
	struct sock *sk = &icsk->icsk_inet.sk;

	// The iterator's own.
	HAVE(sk->__sk_common.skc_cookie.counter);
	HAVE(sk->__sk_common.skc_refcnt.refs.counter);
	HAVE(sk->sk_lock.owned);
	HAVE(sk->sk_backlog.len);
	HAVE(sk->sk_tsq_flags);
	HAVE(sk->sk_uid.val);
	if (at & READS_LITTLE || mode != MODE_SNAPSHOT)
		return;
	HAVE(tp->notsent_lowat);
	HAVE(tp->snd_cwnd_clamp);
	HAVE(tp->write_seq);
	HAVE(tp->snd_una);
	if (at & READS_QUIET)
		return;
	HAVE(icsk->icsk_ca_ops);
	HAVE(icsk->icsk_retransmits);
	HAVE(tp->snd_ssthresh);
	HAVE(tp->bytes_acked);
	HAVE(tp->total_retrans);
}

// A visit begins. What the last one has read of the socket.
static __always_inline __u32 look_ahead(const struct sock_common *common, const struct control *control)
{
	__u32 nth, gone, reads;

	if (!bpf_rdonly_cast)
		return READS_ALL;
	for (gone = 0; gone < GONE_MAX; gone++) {
		if ((*last_walk(met + gone) & ~(__u64)READS_MASK) == (__u64)common)
			break;
	}
	if (gone == GONE_MAX)
		return READS_ALL; // it is new
	reads = *last_walk(met + gone) & READS_MASK;
	nth = met / BATCH;
	met += gone + 1;
	if (met / BATCH == nth)
		return reads;
	gone = met;
	for (nth = 0; nth < BATCH; nth++)
		HAVE(socket_at(*last_walk(gone + FIRST_AHEAD * BATCH + nth))->inet_conn.icsk_inet.sk.__sk_common.skc_daddr);
	for (nth = 0; nth < BATCH; nth++)
		have_lines(*last_walk(gone + LINES_AHEAD * BATCH + nth), control->mode);
	return reads;
}

// A visit is over; the next pass reads so much of this socket.
static __always_inline void remember(const struct sock_common *common, __u32 reads)
{
	volatile __u64 *visit;

	if (walked >= WALK_MAX)
		return;
	visit = &walks[walk & 1][walked++ & (WALK_MAX - 1)];
	*visit = (__u64)common; // a pointer, to which the kernel lets no program add bits
	*visit |= reads;
}

static __always_inline void end_walk(void)
{
	walk++;
	walked = met = 0;
}
