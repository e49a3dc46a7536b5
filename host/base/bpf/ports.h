// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
// The ports that a program is about: a bit for each, since most segments and sockets of a machine are asked for theirs.
// host/base/src/bpf.rs fills the map.

#pragma once

#define PORT_WORDS 1024

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PORT_WORDS);
	__type(key, __u32);
	__type(value, __u64);
} ports SEC(".maps");

static __always_inline int is_port(__u16 port)
{
	__u32 word = port / 64;
	__u64 *bits = bpf_map_lookup_elem(&ports, &word);

	return bits && *bits >> port % 64 & 1;
}
