// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
// One pass over the TCP sockets of a network namespace (an iterator, iter/tcp). It decides nothing: it tells user space
// what a socket has (`struct look`), and carries out the order for it (`struct order`), if the socket still is as user
// space saw it. What a socket had before is kept in the socket itself (`touched`). That record is written in the same
// visit as the change, goes away with the socket, and outlives the program, since the map is pinned.

#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>

#include "kernel.h"
#include "tune.h"
#include "matching.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct touched);
} touched SEC(".maps");

// By cookie. User space empties it before each pass.
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

static __always_inline void addresses(const struct sock_common *common, struct look *look)
{
	if (common->skc_family == AF_INET6) {
		__builtin_memcpy(look->local, common->skc_v6_rcv_saddr.in6_u.u6_addr8, 16);
		__builtin_memcpy(look->peer, common->skc_v6_daddr.in6_u.u6_addr8, 16);
		return;
	}
	look->local[10] = look->local[11] = look->peer[10] = look->peer[11] = 0xff;
	__builtin_memcpy(look->local + 12, &common->skc_rcv_saddr, 4);
	__builtin_memcpy(look->peer + 12, &common->skc_daddr, 4);
}

// What TCP_INFO would tell (tcp_get_info in net/ipv4/tcp.c), as counters of the kernel.
static __always_inline void counters(struct tcp_sock *tp, struct look *look)
{
	struct inet_connection_sock *icsk = &tp->inet_conn;
	struct sock *sk = &icsk->icsk_inet.sk;
	__u32 now = bpf_jiffies64();
	__u32 kind = BPF_CORE_READ_BITFIELD(tp, chrono_type);
	__u32 since = kind ? now - tp->chrono_start : 0;

	look->cwnd_segments = tp->snd_cwnd;
	look->threshold_segments = tp->snd_ssthresh;
	look->peer_window_bytes = tp->snd_wnd;
	look->segment_bytes = tp->mss_cache;
	look->rtt_eighths_us = tp->srtt_us;
	look->rtt_min_us = tp->rtt_min.s[0].v;
	look->rto_ticks = icsk->icsk_rto;
	look->acked_bytes = tp->bytes_acked;
	look->unacked_bytes = tp->write_seq - tp->snd_una;
	look->unsent_bytes = tp->write_seq - tp->snd_nxt;
	look->sent_segments = tp->data_segs_out;
	look->resent_segments = tp->total_retrans;
	look->marked_segments = tp->delivered_ce;
	look->busy_ticks = tp->chrono_stat[0] + tp->chrono_stat[1] + tp->chrono_stat[2] + since;
	look->window_limited_ticks = tp->chrono_stat[1] + (kind == CHRONO_WINDOW_LIMITED ? since : 0);
	look->quiet_ticks = now - tp->lsndtime;
	look->queued_bytes = sk->sk_wmem_queued;
	look->send_buffer_bytes = sk->sk_sndbuf;
	look->ca_state = BPF_CORE_READ_BITFIELD(icsk, icsk_ca_state);
	bpf_core_read_str(look->control, sizeof(look->control), &icsk->icsk_ca_ops->name);
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
			return OUTCOME_REFUSED;
		ours->set_clamp = order->to_clamp;
	}
	if (order->to_lowat != order->from_lowat) {
		if (set_lowat(tp, order->to_lowat))
			return OUTCOME_REFUSED;
		ours->set_lowat = order->to_lowat;
	}
	return OUTCOME_DONE;
}

// 1 if the socket is to be told of.
static __always_inline int act(struct tcp_sock *tp, struct touched *ours, const struct control *control,
			       struct look *look)
{
	struct order *order;

	switch (control->mode) {
	case MODE_LOOK:
		return ours || look->flags & FLAG_MATCHED;
	case MODE_ORDERS:
		order = bpf_map_lookup_elem(&orders, &look->cookie);
		if (!order)
			return 0;
		if (!order->give_back)
			look->outcome = carry_out(tp, ours, order);
		else
			look->outcome = ours ? give_back(tp, ours) : OUTCOME_DONE;
		return 1;
	case MODE_RESTORE: // tells nothing, so that no full buffer makes a pass visit a socket again
		if (ours)
			give_back(tp, ours);
		return 0;
	case MODE_CHANGED:
		return ours != 0;
	}
	return 0;
}

SEC("iter/tcp")
int pass(struct bpf_iter__tcp *context)
{
	struct sock_common *common = context->sk_common;
	struct control *control_now;
	struct look look = {};
	struct touched *ours;
	struct tcp_sock *tp;
	__u32 zero = 0;

	control_now = bpf_map_lookup_elem(&control, &zero);
	if (!control_now)
		return 0;
	if (!common) { // the end of the pass
		control_now->ticks = bpf_jiffies64();
		control_now->at_ns = bpf_ktime_get_ns();
		return 0;
	}
	look.state = common->skc_state;
	if (control_now->mode == MODE_CLOCK || look.state == STATE_LISTEN || look.state == STATE_CLOSE)
		return 0;
	look.local_port = common->skc_num;
	addresses(common, &look);
	// What an earlier instance left elsewhere was undone by MODE_RESTORE.
	if (control_now->mode < MODE_RESTORE && !matches_place(control_now->by, look.local_port, look.local))
		return 0;
	tp = bpf_skc_to_tcp_sock(common);
	if (!tp)
		return 0;
	ours = bpf_sk_storage_get(&touched, tp, 0, 0);
	if (ours) {
		look.flags |= FLAG_OURS;
		look.ours = *ours;
	}
	if (control_now->by & BY_CGROUP)
		look.cgroup = cgroup_of(&tp->inet_conn.icsk_inet.sk);
	if (!(control_now->by & BY_CGROUP) || bpf_map_lookup_elem(&cgroups, &look.cgroup))
		look.flags |= FLAG_MATCHED;
	if (BPF_CORE_READ_BITFIELD(&tp->inet_conn.icsk_inet.sk, sk_userlocks) & SNDBUF_LOCK)
		look.flags |= FLAG_SEND_BUFFER_FIXED;
	look.cookie = bpf_get_socket_cookie(common);
	look.peer_port = bpf_ntohs(common->skc_dport);
	// As they were before the order.
	look.clamp_segments = tp->snd_cwnd_clamp;
	look.lowat_bytes = tp->notsent_lowat;
	if (!act(tp, ours, control_now, &look))
		return 0;
	counters(tp, &look);
	bpf_seq_write(context->meta->seq, &look, sizeof(look));
	return 0;
}
