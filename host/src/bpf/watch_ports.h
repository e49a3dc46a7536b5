// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
// The ports that `receive` is about; empty: all. host/src/receive/ fills the map.

#pragma once

// A bound; host/src/limits.rs gives its reason.
#define WATCH_PORTS_MAX 64

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, WATCH_PORTS_MAX);
	__type(key, __u16);
	__type(value, __u8);
} ports SEC(".maps");
