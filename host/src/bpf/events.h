// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
// What the program and user space tell each other. `host/src/events/news.rs` has the same layout.

#pragma once

// Bounds; host/src/limits.rs gives their reasons.
#define NEWS_BYTES_MAX 262144

// As core/src/hints.rs numbers them.
enum { NEWS_CWR = 1, NEWS_RECOVERY = 2, NEWS_TIMEOUT = 3, NEWS_RESET = 4 };

struct events_settings {
	__u32 by; // matching.h
};

struct news {
	__u64 cookie;
	__u64 at_ns;
	__u32 kind;
	__u32 uid; // whose socket it is
};
