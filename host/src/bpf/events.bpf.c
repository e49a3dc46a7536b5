// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
// Tells user space when TCP cuts the congestion window of a connection, and when a connection is reset. It changes nothing.
// A socket that nobody has asked for its cookie (SO_COOKIE) is known to nobody, so nothing is told of it: that is how
// a server says of which of its connections it wants to hear.

#include "program.h"
#include "events.h"
#include "matching.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct events_settings);
} settings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, TCP_EVENTS_BYTES_MAX);
} events SEC(".maps");

// How many found no room in the ring.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} missed SEC(".maps");

static __always_inline int is_meant(struct sock *sk, __u32 by)
{
	__u8 local[16] = {};
	__u64 cgroup;

	if (!by)
		return 1;
	local_address(&sk->__sk_common, local);
	if (!matches_place(by, sk->__sk_common.skc_num, local))
		return 0;
	if (!(by & BY_CGROUP))
		return 1;
	cgroup = cgroup_of(sk);
	return bpf_map_lookup_elem(&cgroups, &cgroup) != 0;
}

static __always_inline void tell(struct sock *sk, __u32 kind)
{
	__u64 cookie = sk->__sk_common.skc_cookie.counter;
	struct events_settings *set;
	struct tcp_event *told;
	__u64 *count;
	__u32 zero = 0;

	if (!cookie)
		return;
	set = bpf_map_lookup_elem(&settings, &zero);
	if (!set || !is_meant(sk, set->by))
		return;
	told = bpf_ringbuf_reserve(&events, sizeof(*told), 0);
	if (!told) {
		count = bpf_map_lookup_elem(&missed, &zero);
		if (count)
			__sync_fetch_and_add(count, 1);
		return;
	}
	told->cookie = cookie;
	told->at_ns = bpf_ktime_get_ns();
	told->kind = kind;
	told->uid = sk->sk_uid.val;
	bpf_ringbuf_submit(told, 0);
}

// Each retransmission timeout enters CA_LOSS, also one that follows another.
SEC("tp_btf/tcp_cong_state_set")
int BPF_PROG(state_set, struct sock *sk, const __u8 state)
{
	if (state == CA_CWR)
		tell(sk, TCP_EVENT_CWR);
	else if (state == CA_RECOVERY)
		tell(sk, TCP_EVENT_RECOVERY);
	else if (state == CA_LOSS)
		tell(sk, TCP_EVENT_TIMEOUT);
	return 0;
}

SEC("tp_btf/tcp_receive_reset")
int BPF_PROG(reset, struct sock *sk)
{
	tell(sk, TCP_EVENT_RESET);
	return 0;
}
