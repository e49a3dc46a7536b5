// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
// How long TCP segments wait at a receiver: from their arrival (netif_receive_skb) until TCP processes them, which is Wu
// and Crawford's T_wait, and until the process copies them. Tracepoints with BTF only, since fentry may be refused.
//
// A segment's arrival is noted in a ring of its connection. TCP processes segments in the order of arrival, from the
// backlog or at once, and the process copies them in the order of sequence numbers; so both walk the ring from its head.

#include "program.h"
#include "receiver.h"
#include "receive.h"
#include "segment.h"
#include "receive_state.h"
#include "receive_segments.h"
#include "receive_copies.h"

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
