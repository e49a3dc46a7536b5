// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
// What the program that watches receivers keeps: its maps, and how a connection, a service and a row are found in them.

#pragma once

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct settings);
} settings SEC(".maps");

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

// Of the `nth` arrival.
static __always_inline __u8 lap_of(__u32 nth)
{
	return nth / ARRIVALS_MAX % 2 ? 0 : ARRIVAL_EVEN;
}

static __always_inline void most(__u32 *most, __u32 now)
{
	if (now > *most)
		*most = now;
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
	if (set->meant.by_port) {
		if (is_port(local))
			return 1;
		*service = (struct service){ .port = peer, .is_peer = 1 };
		return is_port(peer);
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
	key->local_port = common->skc_num;
	key->peer_port = bpf_ntohs(common->skc_dport);
	if (common->skc_family == AF_INET6) {
		BPF_CORE_READ_INTO(&key->local, common, skc_v6_rcv_saddr.in6_u.u6_addr8);
		BPF_CORE_READ_INTO(&key->peer, common, skc_v6_daddr.in6_u.u6_addr8);
		return;
	}
	key->local[2] = key->peer[2] = IPV4_AS_IPV6;
	key->local[3] = common->skc_rcv_saddr;
	key->peer[3] = common->skc_daddr;
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
