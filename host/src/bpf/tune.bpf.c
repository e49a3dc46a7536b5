// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
// One pass over the TCP sockets of a network namespace (an iterator, iter/tcp). It decides nothing: it tells user space
// what a socket has (`struct socket_snapshot`), and carries out the order for it (`struct order`), if the socket still
// is as user space saw it.
// What a socket had before is kept in the socket itself (`touched`). That record is written in the same visit as the
// change, goes away with the socket, and outlives the program, since the map is pinned.

#include "program.h"
#include "tune.h"
#include "matching.h"

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct touched);
} touched SEC(".maps");

// By cookie.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, ORDERS_MAX);
	__type(key, __u64);
	__type(value, struct order);
} orders SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct control);
} control SEC(".maps");

#include "ahead.h"

// As `local_address`.
static __always_inline void peer_address(const struct sock_common *common, __u8 *octets)
{
	if (common->skc_family == AF_INET6) {
		__builtin_memcpy(octets, common->skc_v6_daddr.in6_u.u6_addr8, 16);
		return;
	}
	octets[10] = octets[11] = 0xff;
	__builtin_memcpy(octets + 12, &common->skc_daddr, 4);
}

// What TCP_INFO would tell (tcp_get_info in net/ipv4/tcp.c), as counters of the kernel.
static __always_inline void counters(struct tcp_sock *tp, struct socket_snapshot *snapshot)
{
	struct inet_connection_sock *icsk = &tp->inet_conn;
	struct sock *sk = &icsk->icsk_inet.sk;
	__u32 now = bpf_jiffies64();
	__u32 kind = BPF_CORE_READ_BITFIELD(tp, chrono_type);
	__u32 since = kind ? now - tp->chrono_start : 0;

	snapshot->cwnd_segments = tp->snd_cwnd;
	snapshot->threshold_segments = tp->snd_ssthresh;
	snapshot->peer_window_bytes = tp->snd_wnd;
	snapshot->segment_bytes = tp->mss_cache;
	snapshot->rtt_eighths_us = tp->srtt_us;
	snapshot->rtt_min_us = tp->rtt_min.s[0].v;
	snapshot->rto_ticks = icsk->icsk_rto;
	snapshot->acked_bytes = tp->bytes_acked;
	snapshot->unacked_bytes = tp->write_seq - tp->snd_una;
	snapshot->unsent_bytes = tp->write_seq - tp->snd_nxt;
	snapshot->sent_segments = tp->data_segs_out;
	snapshot->resent_segments = tp->total_retrans;
	snapshot->marked_segments = tp->delivered_ce;
	snapshot->busy_ticks = tp->chrono_stat[0] + tp->chrono_stat[1] + tp->chrono_stat[2] + since;
	snapshot->window_limited_ticks = tp->chrono_stat[1] + (kind == CHRONO_WINDOW_LIMITED ? since : 0);
	snapshot->quiet_ticks = now - tp->lsndtime;
	snapshot->queued_bytes = sk->sk_wmem_queued;
	snapshot->send_buffer_bytes = sk->sk_sndbuf;
	snapshot->ca_state = BPF_CORE_READ_BITFIELD(icsk, icsk_ca_state);
	__builtin_memcpy(snapshot->control, icsk->icsk_ca_ops->name, sizeof(snapshot->control));
}

static __always_inline long set_clamp(struct tcp_sock *tp, __u32 segments)
{
	// The kernel takes a positive int; its own "no clamp" is the largest unsigned one.
	int value = segments > CLAMP_NONE ? CLAMP_NONE : segments;

	return bpf_setsockopt(tp, SOL_TCP, TCP_BPF_SNDCWND_CLAMP, &value, sizeof(value));
}

static __always_inline long set_lowat(struct tcp_sock *tp, __u32 bytes)
{
	return bpf_setsockopt(tp, SOL_TCP, TCP_NOTSENT_LOWAT, &bytes, sizeof(bytes));
}

// Undoes what is still ours; what somebody else has set since stays.
static __always_inline int give_back(struct tcp_sock *tp, struct touched *ours)
{
	long failed = 0;

	if (ours->set_clamp && tp->snd_cwnd_clamp == ours->set_clamp)
		failed |= set_clamp(tp, ours->was_clamp);
	if (ours->set_lowat && tp->notsent_lowat == ours->set_lowat)
		failed |= set_lowat(tp, ours->was_lowat);
	if (failed)
		return OUTCOME_REFUSED;
	bpf_sk_storage_delete(&touched, tp);
	return OUTCOME_DONE;
}

static __always_inline int carry_out(struct tcp_sock *tp, struct touched *ours, const struct order *order)
{
	struct touched new = { .was_clamp = tp->snd_cwnd_clamp, .was_lowat = tp->notsent_lowat };

	// A pass visits a socket again if the reader's buffer was full: then it is as ordered.
	if (tp->snd_cwnd_clamp == order->to_clamp && tp->notsent_lowat == order->to_lowat && ours)
		return OUTCOME_DONE;
	if (tp->snd_cwnd_clamp != order->from_clamp || tp->notsent_lowat != order->from_lowat)
		return OUTCOME_CHANGED;
	if (!ours)
		ours = bpf_sk_storage_get(&touched, tp, &new, BPF_SK_STORAGE_GET_F_CREATE);
	if (!ours)
		return OUTCOME_REFUSED;
	if (order->to_clamp != order->from_clamp) {
		if (set_clamp(tp, order->to_clamp))
			goto refused;
		ours->set_clamp = order->to_clamp;
	}
	if (order->to_lowat != order->from_lowat) {
		if (set_lowat(tp, order->to_lowat))
			goto refused;
		ours->set_lowat = order->to_lowat;
	}
	return OUTCOME_DONE;
refused: // user space does not know what of it is set: nothing
	give_back(tp, ours);
	return OUTCOME_REFUSED;
}

static __always_inline void tell(struct bpf_iter__tcp *context, __u64 cookie, __u32 outcome)
{
	struct answer answer = { .cookie = cookie, .outcome = outcome };

	bpf_seq_write(context->meta->seq, &answer, sizeof(answer));
}

static __always_inline int obey(struct tcp_sock *tp, const struct order *order)
{
	struct touched *ours = bpf_sk_storage_get(&touched, tp, 0, 0);

	if (!order->give_back)
		return carry_out(tp, ours, order);
	return ours ? give_back(tp, ours) : OUTCOME_DONE;
}

// Most sockets have no order: of those it reads as little as it can.
static __always_inline void obey_only(struct bpf_iter__tcp *context, struct sock_common *common)
{
	__u64 cookie = common->skc_cookie.counter; // a snapshot has made it
	struct order *order = bpf_map_lookup_elem(&orders, &cookie);
	struct tcp_sock *tp;

	if (!order)
		return;
	tp = bpf_skc_to_tcp_sock(common);
	if (tp)
		tell(context, cookie, obey(tp, order));
}

// By the records alone: what an earlier instance left need not match.
static __always_inline void of_records(struct bpf_iter__tcp *context, struct sock_common *common, __u32 mode)
{
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(common);
	struct touched *ours;

	if (!tp)
		return;
	ours = bpf_sk_storage_get(&touched, tp, 0, 0);
	if (!ours)
		return;
	if (mode == MODE_RESTORE) // tells nothing, so that no full buffer makes a pass visit a socket again
		give_back(tp, ours);
	else
		tell(context, bpf_get_socket_cookie(common), OUTCOME_NONE);
}

// It matches, is open, and has no fixed send buffer: as user space takes it for granted of what it is told little of.
static __always_inline int is_usual(const struct sock_common *common, __u8 flags)
{
	__u8 state = common->skc_state;

	return flags == FLAG_MATCHED && (state == STATE_ESTABLISHED || state == STATE_CLOSE_WAIT);
}

// Whether the kernel itself sends by it (NFS, iSCSI, nvme-tcp): such a socket was made by the kernel, or may not start I/O in order to
// have memory. To hold it up may hold up the memory that it would free.
static __always_inline int is_of_kernel(struct sock *sk)
{
	return BPF_CORE_READ_BITFIELD(sk, sk_kern_sock) || (sk->sk_allocation & GFP_KERNEL) != GFP_KERNEL;
}

// Nothing to send, nothing in flight, and so for a while.
static __always_inline int is_quiet(struct tcp_sock *tp, const struct control *control)
{
	__u32 since = (__u32)bpf_jiffies64() - tp->lsndtime;

	return tp->write_seq == tp->snd_una && (!tp->data_segs_out || since >= control->quiet_ticks);
}

static __always_inline void tell_quiet(struct bpf_iter__tcp *context, struct tcp_sock *tp, __u64 cookie)
{
	struct quiet quiet = {
		.cookie = cookie | QUIET, .clamp_segments = tp->snd_cwnd_clamp, .lowat_bytes = tp->notsent_lowat
	};

	bpf_seq_write(context->meta->seq, &quiet, sizeof(quiet));
}

static __always_inline void tell_all(struct bpf_iter__tcp *context, struct tcp_sock *tp, __u64 cookie, __u8 flags)
{
	const struct sock_common *common = &tp->inet_conn.icsk_inet.sk.__sk_common;
	struct socket_snapshot snapshot = {
		.cookie = cookie, .state = common->skc_state, .flags = flags,
		.local_port = common->skc_num, .peer_port = bpf_ntohs(common->skc_dport),
		.clamp_segments = tp->snd_cwnd_clamp, .lowat_bytes = tp->notsent_lowat
	};

	local_address(common, snapshot.local);
	peer_address(common, snapshot.peer);
	counters(tp, &snapshot);
	bpf_seq_write(context->meta->seq, &snapshot, sizeof(snapshot));
}

// What it has read of the socket.
static __always_inline __u32 see(struct bpf_iter__tcp *context, struct sock_common *common, const struct control *control)
{
	struct tcp_sock *tp;
	struct sock *sk;
	__u64 cookie;
	__u8 local[16] = {};
	__u8 flags = 0;

	if (control->by & BY_ADDRESS)
		local_address(common, local);
	if (!matches_place(control->by, common->skc_num, local))
		return READS_LITTLE;
	tp = bpf_skc_to_tcp_sock(common);
	if (!tp)
		return READS_LITTLE;
	sk = &tp->inet_conn.icsk_inet.sk;
	if (is_of_kernel(sk))
		return READS_LITTLE;
	if (!(control->by & BY_CGROUP) || is_of_cgroup(sk, control->cgroup))
		flags |= FLAG_MATCHED;
	else if (!bpf_sk_storage_get(&touched, tp, 0, 0))
		return READS_LITTLE;
	if (BPF_CORE_READ_BITFIELD(sk, sk_userlocks) & SNDBUF_LOCK)
		flags |= FLAG_SEND_BUFFER_FIXED;
	cookie = common->skc_cookie.counter;
	if (!cookie)
		cookie = bpf_get_socket_cookie(common);
	if (is_usual(common, flags) && is_quiet(tp, control)) {
		tell_quiet(context, tp, cookie);
		return READS_QUIET;
	}
	tell_all(context, tp, cookie, flags);
	return READS_ALL;
}

SEC("iter/tcp")
int pass(struct bpf_iter__tcp *context)
{
	struct sock_common *common = context->sk_common;
	struct control *control_now;
	__u32 zero = 0, reads;

	control_now = bpf_map_lookup_elem(&control, &zero);
	if (!control_now)
		return 0;
	if (!common) { // the end of the pass
		end_walk();
		control_now->ticks = bpf_jiffies64();
		control_now->at_ns = bpf_ktime_get_ns();
		return 0;
	}
	if (common->skc_state == STATE_LISTEN || common->skc_state == STATE_CLOSE)
		return 0;
	reads = look_ahead(common, control_now);
	switch (control_now->mode) {
	case MODE_SNAPSHOT:
		reads = see(context, common, control_now);
		break;
	case MODE_ORDERS:
		obey_only(context, common);
		break;
	case MODE_RESTORE:
	case MODE_CHANGED:
		of_records(context, common, control_now->mode);
		break;
	}
	remember(common, reads);
	return 0;
}
