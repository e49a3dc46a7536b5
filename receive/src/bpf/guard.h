// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
// What the program of `receive guard` tells user space. `receive/src/turns.rs` has the same layout.

#pragma once

// Bytes of the ring of events, 40 and 8 each. Full: the event is lost, and counted; a turn whose end is lost is cut.
#define EVENTS_BYTES_MAX 65536

enum { EVENT_LOST = 1, EVENT_ENDED = 2 };

struct event {
	__u64 at_ns;
	// Since EVENT_LOST: for how long the thread had a core.
	__u64 ran_ns;
	// With the number, it tells a thread from all others (proc_pid_stat(5), starttime).
	__u64 started_ns;
	__u32 tid;
	__u32 tgid;
	__u32 kind;
	// Packets stand on the backlog.
	__u32 has_backlog;
};

// Events that found no room.
struct guard_missed {
	__u64 events;
};
