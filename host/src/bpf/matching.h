// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
// Which sockets are meant, by local port, address and cgroup. host/src/kernel.rs fills the maps.

#pragma once

#include "ports.h"

// Bounds; host/src/options.rs and host/src/cgroups.rs give their reasons.
#define PREFIXES_MAX 64
#define CGROUPS_MAX 4096

enum { BY_PORT = 1, BY_CGROUP = 2, BY_ADDRESS = 4 };

struct prefix {
	__u32 bits;
	__u8 address[16];
};

// Ids of a cgroup and of those below it.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, CGROUPS_MAX);
	__type(key, __u64);
	__type(value, __u8);
} cgroups SEC(".maps");

// Local addresses; IPv4 ones as IPv6 (::ffff:0:0/96).
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, PREFIXES_MAX);
	__type(key, struct prefix);
	__type(value, __u8);
} prefixes SEC(".maps");

static __always_inline __u64 cgroup_of(struct sock *sk)
{
	if (!bpf_core_field_exists(sk->sk_cgrp_data.cgroup))
		return 0;
	return BPF_CORE_READ(sk, sk_cgrp_data.cgroup, kn, id);
}

// An IPv4 address as IPv6. `octets` are zeros.
static __always_inline void local_address(const struct sock_common *common, __u8 *octets)
{
	if (common->skc_family == AF_INET6) {
		__builtin_memcpy(octets, common->skc_v6_rcv_saddr.in6_u.u6_addr8, 16);
		return;
	}
	octets[10] = octets[11] = 0xff;
	__builtin_memcpy(octets + 12, &common->skc_rcv_saddr, 4);
}

// By what never changes of a socket: port and address.
static __always_inline int matches_place(__u32 by, __u16 port, const __u8 *local)
{
	struct prefix prefix = { .bits = 128 };

	if (by & BY_PORT && !is_port(port))
		return 0;
	if (by & BY_ADDRESS) {
		__builtin_memcpy(prefix.address, local, 16);
		if (!bpf_map_lookup_elem(&prefixes, &prefix))
			return 0;
	}
	return 1;
}
