// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
// How long TCP segments wait at a receiver: from their arrival (netif_receive_skb) until TCP processes them, which is Wu
// and Crawford's T_wait, and until the process copies them. Tracepoints with BTF only, since fentry may be refused.
//
// A segment's arrival is noted in a ring of its connection. TCP processes segments in the order of arrival, from the
// backlog or at once, and the process copies them in the order of sequence numbers; so both walk the ring from its head.

#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_tracing.h>

#include "kernel.h"
#include "receive.h"
#include "segment.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct settings);
} settings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, WATCH_PORTS_MAX);
	__type(key, __u16);
	__type(value, __u8);
} ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, ROWS_MAX);
	__type(key, struct row_key);
	__type(value, struct row);
} rows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, WATCHED_MAX);
	__type(key, struct watched_key);
	__type(value, struct watched);
} watched SEC(".maps");

// By the service; `is_peer` as the sender sees it.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, ROWS_MAX);
	__type(key, struct service);
	__type(value, struct sender);
} senders SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct missed);
} missed SEC(".maps");

// What a thread reads from. `sk` may be gone: only its number says whether it is still that socket.
struct reading {
	struct sock *sk;
	__u64 cookie;
	struct row_key row;
	__u64 off_ns; // 0: it runs, or sleeps
	__u32 owned;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct reading);
} threads SEC(".maps");

// Zeros for new values, which are too large for the stack.
static struct watched new_watched;
static struct row new_row;

static __always_inline void count_missed(int connection)
{
	__u32 zero = 0;
	struct missed *count = bpf_map_lookup_elem(&missed, &zero);

	if (!count)
		return;
	if (connection)
		__sync_fetch_and_add(&count->connections, 1);
	else
		__sync_fetch_and_add(&count->rows, 1);
}

static __always_inline __u32 bin_of(__u64 ns)
{
	if (ns < 1000000)
		return 0;
	if (ns < 10000000)
		return 1;
	if (ns < 100000000)
		return 2;
	if (ns < 200000000)
		return 3;
	return ns < 1000000000 ? 4 : 5;
}

static __always_inline void add(__u64 *bins, __u32 bin, __u64 count)
{
	if (bin < BINS)
		__sync_fetch_and_add(&bins[bin], count);
}

// The service of a connection; 0 if it is not watched.
static __always_inline int service_of(__u16 local, __u16 peer, struct service *service)
{
	__u32 zero = 0;
	struct settings *set = bpf_map_lookup_elem(&settings, &zero);

	if (!set)
		return 0;
	*service = (struct service){ .port = local };
	if (set->by_port) {
		if (bpf_map_lookup_elem(&ports, &local))
			return 1;
		*service = (struct service){ .port = peer, .is_peer = 1 };
		return bpf_map_lookup_elem(&ports, &peer) != 0;
	}
	if (local >= set->ephemeral_first && local <= set->ephemeral_last &&
	    (peer < set->ephemeral_first || peer > set->ephemeral_last))
		*service = (struct service){ .port = peer, .is_peer = 1 };
	return 1;
}

static __always_inline int service_of_socket(const struct sock *sk, struct service *service)
{
	return service_of(sk->__sk_common.skc_num, bpf_ntohs(sk->__sk_common.skc_dport), service);
}

static __always_inline void key_of(const struct sock *sk, struct watched_key *key)
{
	const struct sock_common *common = &sk->__sk_common;

	key->net = (__u64)common->skc_net.net;
	key->local.port = common->skc_num;
	key->peer.port = bpf_ntohs(common->skc_dport);
	if (common->skc_family == AF_INET6) {
		BPF_CORE_READ_INTO(&key->local.address, common, skc_v6_rcv_saddr.in6_u.u6_addr8);
		BPF_CORE_READ_INTO(&key->peer.address, common, skc_v6_daddr.in6_u.u6_addr8);
		return;
	}
	key->local.address[10] = key->local.address[11] = 0xff;
	key->peer.address[10] = key->peer.address[11] = 0xff;
	__builtin_memcpy(key->local.address + 12, (const void *)&common->skc_rcv_saddr, 4);
	__builtin_memcpy(key->peer.address + 12, (const void *)&common->skc_daddr, 4);
}

static __always_inline struct watched *watch(const struct watched_key *key, const struct service *service)
{
	struct watched *of = bpf_map_lookup_elem(&watched, key);

	if (of)
		return of;
	if (bpf_map_update_elem(&watched, key, &new_watched, BPF_NOEXIST))
		count_missed(1);
	of = bpf_map_lookup_elem(&watched, key);
	if (of)
		of->row.service = *service;
	return of;
}

static __always_inline struct row *row_of(const struct row_key *key)
{
	struct row *row = bpf_map_lookup_elem(&rows, key);

	if (row)
		return row;
	if (bpf_map_update_elem(&rows, key, &new_row, BPF_NOEXIST))
		count_missed(0);
	row = bpf_map_lookup_elem(&rows, key);
	if (row)
		bpf_get_current_comm(row->process, sizeof(row->process));
	return row;
}

SEC("tp_btf/netif_receive_skb")
int BPF_PROG(arrived, struct sk_buff *skb)
{
	struct watched_key key = {};
	struct skb_shared_info *shared;
	struct arrival *slot;
	struct watched *of;
	__u32 end, at;
	__u16 segments;

	if (!parse(skb, &key, &end))
		return 0;
	of = bpf_map_lookup_elem(&watched, &key);
	if (!of)
		return 0;
	at = of->arrived;
	// It passes here once more if a bridge is in its way.
	if (at != of->processed && of->ring[(at - 1) % ARRIVALS_MAX].end == end)
		return 0;
	if (at - of->copied >= ARRIVALS_MAX) {
		__sync_fetch_and_add(&of->unmeasured, 1);
		return 0;
	}
	shared = (void *)(skb->head + skb->end);
	segments = BPF_CORE_READ(shared, gso_segs);
	slot = &of->ring[at % ARRIVALS_MAX];
	*slot = (struct arrival){
		.at_ns = bpf_ktime_get_ns(), .end = end, .segments = segments ? segments : 1, .tcp_bin = BIN_NONE
	};
	of->arrived = at + 1;
	return 0;
}

// What TCP does with a segment, or with several that were merged on the backlog.
struct processing {
	struct watched *of;
	__u64 now_ns;
	__u32 seq;
	__u32 end;
	__u32 at;
	__u32 flags;
	__u32 found;
};

static long find(__u32 nth, struct processing *step)
{
	struct watched *of = step->of;
	__u32 at = of->processed + nth;
	__u32 end = of->ring[at % ARRIVALS_MAX].end;

	if (at == of->arrived)
		return 1;
	if ((__s32)(end - step->seq) > 0 && (__s32)(end - step->end) <= 0) {
		step->at = at;
		step->found = 1;
		return 1;
	}
	return 0;
}

static long take(__u32 nth, struct processing *step)
{
	struct watched *of = step->of;
	struct arrival *slot = &of->ring[step->at % ARRIVALS_MAX];

	if (step->at == of->arrived || (__s32)(slot->end - step->seq) <= 0 || (__s32)(slot->end - step->end) > 0)
		return 1;
	slot->tcp_bin = bin_of(step->now_ns - slot->at_ns);
	slot->flags = step->flags;
	step->seq = slot->end; // what was sent again is not part of what was merged
	step->at++;
	return 0;
}

static __always_inline void note_queues(struct watched *of, struct tcp_sock *tp, __u32 more)
{
	__u32 queue_bytes = tp->rcv_nxt - tp->copied_seq;
	struct sk_buff *last = tp->ooo_last_skb;

	// A FIN has a sequence number, too.
	if (tp->inet_conn.icsk_inet.sk.sk_shutdown & RCV_SHUTDOWN && queue_bytes)
		queue_bytes--;
	of->queue_bytes = queue_bytes + more;
	of->backlog_bytes = tp->inet_conn.icsk_inet.sk.sk_backlog.len;
	of->gap_bytes = 0;
	if (tp->out_of_order_queue.rb_node && last) {
		struct tcp_skb_cb *cb = (void *)last->cb;

		of->gap_bytes = BPF_CORE_READ(cb, end_seq) - tp->rcv_nxt;
	}
}

static __always_inline void note_sender(struct tcp_sock *tp, const struct service *service)
{
	struct sender none = {}, *sender;

	if (!tp->data_segs_out)
		return;
	sender = bpf_map_lookup_elem(&senders, service);
	if (!sender) {
		bpf_map_update_elem(&senders, service, &none, BPF_NOEXIST);
		sender = bpf_map_lookup_elem(&senders, service);
		if (!sender)
			return;
	}
	// __tcp_set_rto, without its rounding to ticks
	sender->rto_us = (tp->srtt_us >> 3) + tp->rttvar_us;
	if (sender->rto_us > sender->rto_us_most)
		sender->rto_us_most = sender->rto_us;
}

SEC("tp_btf/tcp_probe")
int BPF_PROG(processed, struct sock *sk, struct sk_buff *skb)
{
	struct processing step = {};
	struct watched_key key = {};
	struct service service;
	struct tcp_skb_cb *cb;
	struct tcp_sock *tp;
	struct watched *of;

	if (!service_of_socket(sk, &service))
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return 0;
	note_sender(tp, &service);
	cb = (void *)skb->cb;
	step.seq = BPF_CORE_READ(cb, seq);
	step.end = BPF_CORE_READ(cb, end_seq);
	if (step.end == step.seq)
		return 0;
	key_of(sk, &key);
	of = watch(&key, &service);
	if (!of)
		return 0;
	step.now_ns = bpf_ktime_get_ns();
	step.of = of;
	step.flags = sk->sk_lock.owned ? ARRIVAL_BACKLOGGED : 0;
	// A single octet may be a probe of the window, or a FIN.
	if ((__s32)(step.end - tp->rcv_nxt) <= 0 && step.end - step.seq > 1) {
		step.flags |= ARRIVAL_AGAIN;
		__sync_fetch_and_add(&of->again, 1);
	}
	// Those before it were dropped on their way to TCP.
	bpf_loop(ARRIVALS_MAX, find, &step, 0);
	note_queues(of, tp, step.found && step.seq == tp->rcv_nxt ? step.end - step.seq : 0);
	if (!step.found)
		return 0;
	bpf_loop(ARRIVALS_MAX, take, &step, 0);
	of->processed = step.at;
	return 0;
}

struct copying {
	struct watched *of;
	struct row *row;
	__u64 now_ns;
	__u32 copied_seq;
};

static long count(__u32 nth, struct copying *step)
{
	struct watched *of = step->of;
	struct row *row = step->row;
	struct arrival slot = of->ring[of->copied % ARRIVALS_MAX];

	if (of->copied == of->processed || (__s32)(slot.end - step->copied_seq) > 0)
		return 1;
	of->copied++;
	add(row->to_tcp, slot.tcp_bin, slot.segments);
	if (slot.flags & ARRIVAL_BACKLOGGED)
		add(row->backlogged, slot.tcp_bin, slot.segments);
	if (slot.tcp_bin < BINS && !(slot.flags & ARRIVAL_AGAIN))
		add(row->to_copy, bin_of(step->now_ns - slot.at_ns), slot.segments);
	return 0;
}

static __always_inline void most(__u32 *most, __u32 now)
{
	if (now > *most)
		*most = now;
}

// What a connection has counted goes to the row of its process.
static __always_inline void settle(struct watched *of, struct row *row)
{
	__sync_fetch_and_add(&row->again, of->again);
	__sync_fetch_and_add(&row->unmeasured, of->unmeasured);
	of->again = of->unmeasured = 0;
}

SEC("tp_btf/tcp_rcv_space_adjust")
int BPF_PROG(copied, struct sock *sk)
{
	struct copying step = {};
	struct watched_key key = {};
	struct row_key row_key = {};
	struct reading *reading;
	struct settings *set;
	struct tcp_sock *tp;
	struct watched *of;
	struct row *row;
	__u32 zero = 0;

	// Not by a process, if nobody owns the lock.
	if (!sk->sk_lock.owned || !service_of_socket(sk, &row_key.service))
		return 0;
	row_key.tgid = bpf_get_current_pid_tgid() >> 32;
	set = bpf_map_lookup_elem(&settings, &zero);
	if (!set || (set->tgid && set->tgid != row_key.tgid))
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return 0;
	key_of(sk, &key);
	of = watch(&key, &row_key.service);
	row = row_of(&row_key);
	if (!of || !row)
		return 0;
	of->row = row_key;
	most(&row->queue_bytes_most, of->queue_bytes);
	most(&row->backlog_bytes_most, of->backlog_bytes);
	most(&row->gap_bytes_most, of->gap_bytes);
	note_queues(of, tp, 0);
	settle(of, row);
	step.of = of;
	step.row = row;
	step.now_ns = bpf_ktime_get_ns();
	step.copied_seq = tp->copied_seq;
	bpf_loop(ARRIVALS_MAX, count, &step, 0);
	reading = bpf_task_storage_get(&threads, bpf_get_current_task_btf(), 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (reading) {
		reading->sk = sk;
		reading->cookie = bpf_get_socket_cookie(sk);
		reading->row = row_key;
	}
	return 0;
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(changed, const struct sock *sk, int before, int now)
{
	struct watched_key key = {};
	struct service service;
	struct watched *of;
	struct row *row;

	if (sk->sk_protocol != IPPROTO_TCP || (now != STATE_ESTABLISHED && now != STATE_CLOSE))
		return 0;
	if (!service_of_socket(sk, &service))
		return 0;
	key_of(sk, &key);
	if (now == STATE_ESTABLISHED) {
		watch(&key, &service);
		return 0;
	}
	of = bpf_map_lookup_elem(&watched, &key);
	if (!of)
		return 0;
	row = bpf_map_lookup_elem(&rows, &of->row);
	if (row)
		settle(of, row);
	bpf_map_delete_elem(&watched, &key);
	return 0;
}

SEC("tp_btf/tcp_cong_state_set")
int BPF_PROG(congested, struct sock *sk, __u8 state)
{
	struct service service;
	struct sender *sender;

	if (state != CA_LOSS || !service_of_socket(sk, &service))
		return 0;
	sender = bpf_map_lookup_elem(&senders, &service);
	if (sender)
		__sync_fetch_and_add(&sender->timeouts, 1);
	return 0;
}

static __always_inline int owned(const struct reading *reading, __u32 *backlog_bytes)
{
	struct sock *sk = reading->sk;

	if (BPF_CORE_READ(sk, __sk_common.skc_cookie.counter) != reading->cookie)
		return 0;
	*backlog_bytes = BPF_CORE_READ(sk, sk_backlog.len);
	return BPF_CORE_READ(sk, sk_lock.owned);
}

static __always_inline void leaves(struct reading *reading, struct task_struct *task, struct task_struct *next,
				   _Bool preempted)
{
	struct row *row = bpf_map_lookup_elem(&rows, &reading->row);
	__u32 backlog_bytes = 0;

	reading->off_ns = 0;
	if (!row)
		return;
	reading->owned = owned(reading, &backlog_bytes);
	if (!preempted && task->__state) {
		if (reading->owned)
			__sync_fetch_and_add(&row->slept_owning, 1);
		return;
	}
	reading->off_ns = bpf_ktime_get_ns();
	if (!reading->owned)
		return;
	__sync_fetch_and_add(&row->lost_owning, 1);
	row->owner_tid = task->pid;
	BPF_CORE_READ_INTO(&row->owner, task, comm);
	BPF_CORE_READ_INTO(&row->taker, next, comm);
}

static __always_inline void comes_back(struct reading *reading)
{
	struct row *row = bpf_map_lookup_elem(&rows, &reading->row);
	__u32 backlog_bytes = 0;

	if (row && reading->owned) {
		add(row->off_owning, bin_of(bpf_ktime_get_ns() - reading->off_ns), 1);
		if (owned(reading, &backlog_bytes) && backlog_bytes)
			__sync_fetch_and_add(&row->lost_with_backlog, 1);
	} else if (row) {
		add(row->off_free, bin_of(bpf_ktime_get_ns() - reading->off_ns), 1);
	}
	reading->off_ns = 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(switched, _Bool preempted, struct task_struct *prev, struct task_struct *next)
{
	struct reading *reading = bpf_task_storage_get(&threads, prev, 0, 0);

	if (reading)
		leaves(reading, prev, next, preempted);
	reading = bpf_task_storage_get(&threads, next, 0, 0);
	if (reading && reading->off_ns)
		comes_back(reading);
	return 0;
}
