// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
// Which sockets are meant, by local port, address and cgroup. host/src/kernel.rs fills the maps.

#pragma once

#include "ports.h"

// Bounds; host/src/options.rs gives the reason of the first.
#define PREFIXES_MAX 65 // of the operator, and IPv4
#define CGROUP_DEPTH_MAX 32

enum { BY_PORT = 1, BY_CGROUP = 2, BY_ADDRESS = 4 };

struct prefix {
	__u32 bits;
	__u8 address[16];
};

// Local addresses; IPv4 ones as IPv6 (::ffff:0:0/96). The longest prefix says whether they match: IPv4 does not by a prefix of IPv6.
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, PREFIXES_MAX);
	__type(key, struct prefix);
	__type(value, __u8);
} prefixes SEC(".maps");

// Before Linux 6.1 a cgroup kept the ids of its ancestors, not where they are.
struct cgroup___ids {
	__u64 ancestor_ids[0];
} __attribute__((preserve_access_index));

static __always_inline __u64 ancestor_of(struct cgroup *cgroup, int level)
{
	struct cgroup *ancestor;
	__u64 id;

	if (bpf_core_field_exists(cgroup->ancestors)) {
		if (bpf_core_read(&ancestor, sizeof(ancestor), &cgroup->ancestors[level]))
			return 0;
		return BPF_CORE_READ(ancestor, kn, id);
	}
	if (bpf_core_read(&id, sizeof(id), &((struct cgroup___ids *)cgroup)->ancestor_ids[level]))
		return 0;
	return id;
}

// Whether the socket belongs to the cgroup with this id (the inode of its directory), or to one below it.
static __always_inline int is_of_cgroup(struct sock *sk, __u64 id)
{
	struct cgroup *cgroup;
	int level, own;

	if (!id || !bpf_core_field_exists(sk->sk_cgrp_data.cgroup))
		return 0;
	cgroup = BPF_CORE_READ(sk, sk_cgrp_data.cgroup);
	own = BPF_CORE_READ(cgroup, level);
	for (level = 0; level < CGROUP_DEPTH_MAX && level <= own; level++)
		if (ancestor_of(cgroup, level) == id)
			return 1;
	return 0;
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
	__u8 *matches;

	if (by & BY_PORT && !is_port(port))
		return 0;
	if (by & BY_ADDRESS) {
		__builtin_memcpy(prefix.address, local, 16);
		matches = bpf_map_lookup_elem(&prefixes, &prefix);
		if (!matches || !*matches)
			return 0;
	}
	return 1;
}
