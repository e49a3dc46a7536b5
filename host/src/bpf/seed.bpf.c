// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
// Two things for a connection that moves between nodes, for which Linux has no option.
//
// `look` tells what a live socket has sent and what is acknowledged. TCP_QUEUE_SEQ tells that, too, but only once the send
// queue is selected, and a socket with that selection counts segments as sent which it does not send. It is never attached:
// host/src/handoff/look.rs runs it (BPF_PROG_TEST_RUN) with a packet that holds the question, and then the answer.
//
// `seed` is a congestion control. It sets window and threshold once, and whoever selects it selects another right after;
// both values survive that.

#include "program.h"

#define TC_ACT_OK 0
#define AF_INET 2
#define OWN_NETNS (-1L)

// As linux/bpf.h has them, which can't be included beside kernel.h.
struct __sk_buff {
	__u32 before[19];
	__u32 data, data_end;
};

struct bpf_sock_tuple {
	__u8 bytes[36];
};

// Both as `Socket::ask` writes and reads them.
struct question {
	// Read as an Ethernet header: of no known protocol.
	__u8 ethernet[14];
	__u16 family;
	__u8 client[16], server[16];
	__be16 client_port, server_port;
};

struct answer {
	__u64 cookie;
	__u32 write_seq, snd_una, snd_nxt, rcv_nxt, copied_seq;
	__u32 cwnd_segments, ssthresh_segments, srtt_us, rttvar_us;
	__u32 outstanding;
	__u8 state, ca_state, has_hole, is_urgent;
};

struct windows {
	__u32 cwnd_segments, ssthresh_segments;
};

// What the next socket gets. The broker alone selects `seed`, and does one thing at a time.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct windows);
} windows SEC(".maps");

// From the client to the server, as a segment of it would have them.
static __always_inline __u32 tuple_of(const struct question *asked, struct bpf_sock_tuple *tuple)
{
	__u32 len = asked->family == AF_INET ? 4 : 16;

	if (len == 4) {
		__builtin_memcpy(tuple->bytes, asked->client, 4);
		__builtin_memcpy(tuple->bytes + 4, asked->server, 4);
		__builtin_memcpy(tuple->bytes + 8, &asked->client_port, 4);
		return 12;
	}
	__builtin_memcpy(tuple->bytes, asked->client, 16);
	__builtin_memcpy(tuple->bytes + 16, asked->server, 16);
	__builtin_memcpy(tuple->bytes + 32, &asked->client_port, 4);
	return 36;
}

static __always_inline void tell(struct tcp_sock *tcp, struct answer *told)
{
	struct inet_connection_sock *connection = &tcp->inet_conn;
	struct sock_common *common = &connection->icsk_inet.sk.__sk_common;

	told->cookie = common->skc_cookie.counter;
	told->write_seq = tcp->write_seq;
	told->snd_una = tcp->snd_una;
	told->snd_nxt = tcp->snd_nxt;
	told->rcv_nxt = tcp->rcv_nxt;
	told->copied_seq = tcp->copied_seq;
	told->cwnd_segments = tcp->snd_cwnd;
	told->ssthresh_segments = tcp->snd_ssthresh;
	told->srtt_us = tcp->srtt_us >> 3;
	told->rttvar_us = tcp->rttvar_us >> 2;
	told->outstanding = tcp->sacked_out + tcp->lost_out + tcp->retrans_out;
	told->state = common->skc_state;
	told->ca_state = BPF_CORE_READ_BITFIELD(connection, icsk_ca_state);
	told->has_hole = tcp->out_of_order_queue.rb_node != 0;
	told->is_urgent = tcp->urg_data != 0;
}

// TC_ACT_OK and an answer in place of the question, or TC_ACT_OK + 1: there is no such connection.
SEC("tc")
int look(struct __sk_buff *packet)
{
	void *data = (void *)(long)packet->data, *end = (void *)(long)packet->data_end;
	struct bpf_sock_tuple tuple = {};
	struct answer told = {};
	struct tcp_sock *tcp;
	struct bpf_sock *found;
	__u32 len;

	if (data + sizeof(struct question) > end || data + sizeof(told) > end)
		return TC_ACT_OK + 1;
	len = tuple_of(data, &tuple);
	found = len == 12 ? bpf_skc_lookup_tcp(packet, &tuple, 12, OWN_NETNS, 0)
			  : bpf_skc_lookup_tcp(packet, &tuple, 36, OWN_NETNS, 0);
	if (!found)
		return TC_ACT_OK + 1;
	tcp = bpf_skc_to_tcp_sock(found);
	if (tcp)
		tell(tcp, &told);
	bpf_sk_release(found);
	__builtin_memcpy(data, &told, sizeof(told));
	return tcp ? TC_ACT_OK : TC_ACT_OK + 1;
}

SEC("struct_ops/seed_init")
void BPF_PROG(seed_init, struct sock *sock)
{
	struct tcp_sock *tcp = (struct tcp_sock *)sock;
	__u32 only = 0;
	struct windows *next = bpf_map_lookup_elem(&windows, &only);

	if (!next || !next->cwnd_segments)
		return;
	tcp->snd_cwnd = next->cwnd_segments;
	tcp->snd_ssthresh = next->ssthresh_segments;
	tcp->snd_cwnd_cnt = 0;
}

// Linux wants these three. They are called only if segments arrive before the next selection.
SEC("struct_ops/seed_ssthresh")
__u32 BPF_PROG(seed_ssthresh, struct sock *sock)
{
	__u32 half = ((struct tcp_sock *)sock)->snd_cwnd / 2;

	return half < 2 ? 2 : half;
}

SEC("struct_ops/seed_undo")
__u32 BPF_PROG(seed_undo, struct sock *sock)
{
	return ((struct tcp_sock *)sock)->snd_cwnd;
}

SEC("struct_ops/seed_avoid")
void BPF_PROG(seed_avoid, struct sock *sock, __u32 ack, __u32 acked)
{
}

// host/src/handoff/look.rs names it by the network namespace, since names are the whole machine's.
SEC(".struct_ops.link")
struct tcp_congestion_ops seed = {
	.name = "ackpace",
	.init = (void *)seed_init,
	.ssthresh = (void *)seed_ssthresh,
	.undo_cwnd = (void *)seed_undo,
	.cong_avoid = (void *)seed_avoid,
};
