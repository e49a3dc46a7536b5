// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
// What the program that watches receivers and user space tell each other. `receive/src/rows.rs` has the same layout.

#pragma once

// Processes and ports that are told apart. More: their segments are not told of, and counted.
#define ROWS_MAX 1024
// Connections that are followed at once, 16 KB of memory each. More: counted.
#define WATCHED_MAX 2048
// receive/src/rows.rs gives the reason.
#define ARRIVALS_MAX 1024

// The six bins of Wu and Crawford's Table 4.
#define BINS 6
#define BIN_NONE BINS

struct settings {
	struct meant meant;
	// Local ports that the kernel chooses (ip_local_port_range): the other end has the port of the service.
	__u16 ephemeral_first;
	__u16 ephemeral_last;
};

// A service as one of its ends sees it: `is_peer`, if the port is the other end's.
struct service {
	__u16 port;
	__u16 is_peer;
};

struct row_key {
	__u32 tgid;
	struct service service;
};

struct row {
	// Segments by how long they waited for TCP, and for the copy to the process.
	__u64 to_tcp[BINS];
	__u64 to_copy[BINS];
	// Those of to_tcp that waited on the backlog, behind the socket's lock.
	__u64 backlogged[BINS];
	// The process lost the core although it could have gone on: for how long, with the lock and without.
	__u64 off_owning[BINS];
	__u64 off_free[BINS];
	// Losses with the lock; with packets on the backlog by then, or when it was back; sleeps with the lock.
	__u64 lost_owning;
	__u64 lost_with_backlog;
	__u64 slept_owning;
	// Segments with bytes that had all arrived before.
	__u64 again;
	__u64 unmeasured;
	__u32 queue_bytes_most;
	__u32 backlog_bytes_most;
	__u32 gap_bytes_most;
	__u32 owner_tid;
	char process[16];
	char owner[16];
	char taker[16];
};

// Third word of ::ffff:0:0/96.
#define IPV4_AS_IPV6 bpf_htonl(0xffff)

// Written and hashed by words: so each part stands on a border of its words.
struct watched_key {
	__u64 net;
	__u32 local[4];
	__u32 peer[4];
	__u16 local_port;
	__u16 peer_port;
	__u32 zero;
};

struct arrival {
	__u64 at_ns;
	__u32 end; // sequence number behind it
	__u16 segments;
	__u8 tcp_bin; // BIN_NONE: TCP has not seen it
	__u8 flags;
};

// ARRIVAL_EVEN: of an even lap around the ring, the first one being 0. What is not written yet has another one.
enum { ARRIVAL_BACKLOGGED = 1, ARRIVAL_AGAIN = 2, ARRIVAL_EVEN = 4 };

struct queues {
	__u64 at_ns;
	__u32 queue_bytes;
	__u32 backlog_bytes;
	__u32 gap_bytes;
	__u32 zero;
};

// A connection. Arrivals stand in a ring: `copied` <= `processed` <= `arrived`, which only grow. Mostly one core hears segments,
// and another one copies. So what they write is apart, and neither reads what the other has just written, but for the
// ring.
struct watched {
	// Of the one that copies.
	struct row_key row; // tgid 0: nobody has read from it yet
	struct queues left; // by the last copy
	__u32 copied;
	__u32 apart[17];
	// Of the one that hears.
	struct queues queues; // as of the last segment
	__u32 arrived;
	__u32 processed;
	__u32 copied_once; // as it was a while ago
	__u32 again; // not yet in a row, as all that follows
	__u32 unmeasured;
	__u32 queue_bytes_most;
	__u32 backlog_bytes_most;
	__u32 gap_bytes_most;
	struct arrival ring[ARRIVALS_MAX];
};

struct sender {
	__u64 timeouts;
	__u32 rto_us;
	__u32 rto_us_most;
};

// What is left out, because a map is full.
struct missed {
	__u64 rows;
	__u64 connections;
};
