// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
// What the program and user space tell each other. `host/src/snapshot.rs` and `host/src/kernel.rs` have the same layout.

#pragma once

// A bound; host/src/kernel.rs gives its reason.
#define ORDERS_MAX 65536

// "No clamp", as far as it can be set.
#define CLAMP_NONE 0x7fffffff

enum { MODE_CLOCK = 0, MODE_SNAPSHOT = 1, MODE_ORDERS = 2, MODE_RESTORE = 3, MODE_CHANGED = 4 };
enum { FLAG_MATCHED = 2, FLAG_SEND_BUFFER_FIXED = 4 };
// What became of an order: done; the socket was not as user space saw it; the kernel refused.
enum { OUTCOME_NONE = 0, OUTCOME_DONE = 1, OUTCOME_CHANGED = 2, OUTCOME_REFUSED = 3 };

struct control {
	__u32 mode;
	__u32 by;
	// A socket that has sent nothing for so long, and has nothing to send, is told of by a `struct quiet`.
	__u32 quiet_ticks;
	__u32 unused;
	// Written by the program when a pass ends: jiffies and nanoseconds of the same moment. They tell HZ.
	__u64 ticks;
	__u64 at_ns;
	// The id of the cgroup that is meant, with all below it.
	__u64 cgroup;
};

// The record of a socket that was changed. 0 in `set_`: that one was not.
struct touched {
	__u32 was_clamp;
	__u32 was_lowat;
	__u32 set_clamp;
	__u32 set_lowat;
};

struct order {
	__u32 give_back;
	__u32 from_clamp;
	__u32 from_lowat;
	__u32 to_clamp;
	__u32 to_lowat;
};

// What became of an order in MODE_ORDERS; in MODE_CHANGED, one that was changed.
struct answer {
	__u64 cookie;
	__u32 outcome;
	__u32 zero;
};

// In the cookie of a `struct quiet`, which stands among looks. The kernel counts cookies up from 1.
#define QUIET (1ULL << 63)

// All that may matter of a socket that matches, is open, has no fixed send buffer, and rests.
struct quiet {
	__u64 cookie;
	__u32 clamp_segments;
	__u32 lowat_bytes;
};

// A tick is a jiffy.
struct socket_snapshot {
	__u64 cookie;
	__u64 acked_bytes;
	__u8 local[16];
	__u8 peer[16];
	char control[16];
	__u32 cwnd_segments;
	__u32 threshold_segments;
	__u32 clamp_segments;
	__u32 lowat_bytes;
	__u32 peer_window_bytes;
	__u32 segment_bytes;
	__u32 rtt_eighths_us;
	__u32 rtt_min_us;
	__u32 rto_ticks;
	__u32 unacked_bytes;
	__u32 unsent_bytes;
	__u32 sent_segments;
	__u32 resent_segments;
	__u32 marked_segments;
	__u32 busy_ticks;
	__u32 window_limited_ticks;
	__u32 quiet_ticks;
	__u32 queued_bytes;
	__u32 send_buffer_bytes;
	__u16 local_port;
	__u16 peer_port;
	__u8 state;
	__u8 ca_state;
	__u8 flags;
	__u8 zero[5];
};
