// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
// The way of a segment: it arrives, and TCP processes it.

#pragma once

// How many segments were merged into it.
static __always_inline __u16 segments_of(struct sk_buff *skb)
{
	struct skb_shared_info *shared = (void *)(skb->head + skb->end);

	if (!bpf_rdonly_cast)
		return BPF_CORE_READ(shared, gso_segs);
	shared = bpf_rdonly_cast(shared, bpf_core_type_id_kernel(struct skb_shared_info));
	return shared->gso_segs;
}

SEC("tp_btf/netif_receive_skb")
int BPF_PROG(arrived, struct sk_buff *skb)
{
	struct watched_key key = {};
	struct arrival new = {}, *slot;
	struct service service;
	struct watched *of;
	__u32 end, at;
	__u16 segments;

	// By its ports most are told apart at less cost than by the map.
	if (!parse(skb, &key, &end) || !service_of(key.local_port, key.peer_port, &service))
		return 0;
	of = bpf_map_lookup_elem(&watched, &key);
	if (!of)
		return 0;
	at = of->arrived;
	// Two cores may note arrivals at once. One of them counts, but the other may write what it had counted long before.
	if ((__s32)(at - of->processed) < 0)
		at = of->processed;
	// It passes here once more if a bridge is in its way.
	if (at != of->processed && of->ring[(at - 1) % ARRIVALS_MAX].end == end)
		return 0;
	if (at - of->copied_once >= ARRIVALS_MAX) {
		of->copied_once = of->copied;
		if (at - of->copied_once >= ARRIVALS_MAX) {
			__sync_fetch_and_add(&of->unmeasured, 1);
			return 0;
		}
	}
	segments = segments_of(skb);
	new.end = end;
	new.segments = segments ? segments : 1;
	new.tcp_bin = BIN_NONE;
	new.flags = lap_of(at);
	slot = &of->ring[at % ARRIVALS_MAX];
	slot->at_ns = bpf_ktime_get_ns();
	// At once, for who copies meanwhile.
	*(volatile __u64 *)&slot->end = *(__u64 *)&new.end;
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

	if ((__s32)(of->arrived - at) <= 0)
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

	if ((__s32)(of->arrived - step->at) <= 0 || (__s32)(slot->end - step->seq) <= 0 || (__s32)(slot->end - step->end) > 0)
		return 1;
	slot->tcp_bin = bin_of(step->now_ns - slot->at_ns);
	slot->flags |= step->flags;
	step->seq = slot->end; // what was sent again is not part of what was merged
	step->at++;
	return 0;
}

// What TCP notes of a segment.
static __always_inline void note_segment(struct sk_buff *skb, struct processing *step, __u32 *ack)
{
	struct tcp_skb_cb *cb = 0;
	__u8 octets[sizeof(skb->cb)];

	if (bpf_rdonly_cast) {
		cb = bpf_rdonly_cast(skb->cb, bpf_core_type_id_kernel(struct tcp_skb_cb));
		step->seq = cb->seq;
		step->end = cb->end_seq;
		*ack = cb->ack_seq;
		return;
	}
	if (bpf_probe_read_kernel(octets, sizeof(octets), skb->cb))
		__builtin_memset(octets, 0, sizeof(octets));
	step->seq = *(__u32 *)(octets + bpf_core_field_offset(cb->seq));
	step->end = *(__u32 *)(octets + bpf_core_field_offset(cb->end_seq));
	*ack = *(__u32 *)(octets + bpf_core_field_offset(cb->ack_seq));
}

static __always_inline void note_queues(struct queues *of, struct tcp_sock *tp, __u64 now_ns, __u32 more)
{
	__u32 queue_bytes = tp->rcv_nxt - tp->copied_seq;
	struct sk_buff *last = tp->ooo_last_skb;

	// A FIN has a sequence number, too.
	if (tp->inet_conn.icsk_inet.sk.sk_shutdown & RCV_SHUTDOWN && queue_bytes)
		queue_bytes--;
	of->at_ns = now_ns;
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
	struct tcp_sock *tp;
	struct watched *of;
	__u32 ack;

	if (!service_of_socket(sk, &service))
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return 0;
	note_segment(skb, &step, &ack);
	// Its estimates change only by what is acknowledged now. A mere receiver has those fields in no cache.
	if (ack != tp->snd_una)
		note_sender(tp, &service);
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
	// Mostly it is the first one. Those before it were dropped on their way to TCP.
	if (!find(0, &step))
		bpf_loop(ARRIVALS_MAX, find, &step, 0);
	note_queues(&of->queues, tp, step.now_ns, step.found && step.seq == tp->rcv_nxt ? step.end - step.seq : 0);
	most(&of->queue_bytes_most, of->queues.queue_bytes);
	most(&of->backlog_bytes_most, of->queues.backlog_bytes);
	most(&of->gap_bytes_most, of->queues.gap_bytes);
	if (!step.found)
		return 0;
	if (!take(0, &step) && step.seq != step.end)
		bpf_loop(ARRIVALS_MAX, take, &step, 0);
	of->processed = step.at;
	return 0;
}
