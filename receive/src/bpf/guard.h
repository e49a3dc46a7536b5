// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
// What the scheduler of `receive guard` and user space tell each other. `receive/src/guard.rs` has the same
// layout.

#pragma once

// A bound; receive/src/guard.rs gives its reason.
#define CORES_MAX 256

struct guard_settings {
	__u64 slice_ns;
	// What a thread may owe.
	__u64 owed_ns_most;
	struct meant meant;
	__u32 cores;
	__u32 unused;
};

struct guard_counts {
	// Slices of a thread that receives which ended while it owned its socket's lock.
	__u64 lost;
	// Of these: it ran on.
	__u64 turns;
	// It owed too much to run on, or any longer.
	__u64 owed_too_much;
	// Its call ended within the turn, and it gave the core away.
	__u64 yielded;
	// What all turns took.
	__u64 charged_ns;
	// The kernel has ended the scheduler, for this reason (enum scx_exit_kind).
	__u64 ended;
};
