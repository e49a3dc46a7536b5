// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
// What the program and user space tell each other. `host/src/tcp_events/event.rs` has the same layout.

#pragma once

// Bounds; host/src/limits.rs gives their reasons.
#define TCP_EVENTS_BYTES_MAX 262144

// As core/src/hints.rs numbers them.
enum { TCP_EVENT_CWR = 1, TCP_EVENT_RECOVERY = 2, TCP_EVENT_TIMEOUT = 3, TCP_EVENT_RESET = 4 };

struct events_settings {
	__u32 by; // matching.h
};

struct tcp_event {
	__u64 cookie;
	__u64 at_ns;
	__u32 kind;
	__u32 uid; // whose socket it is
};
