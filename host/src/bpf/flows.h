// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
// What the flow switch and user space tell each other. `host/src/handoff/switch/entry.rs` and `host/src/handoff/switch/held.rs`
// have the same layouts.

#pragma once

// Bounds; host/src/handoff/switch.rs gives their reasons.
#define FLOWS_MAX 65536
#define VIPS_MAX 16
#define RING_BYTES (4 << 20)

// The mark of a held packet on its way from user space to its owner (`RELEASED`).
#define RELEASED 0xac4bace1

// The priority of a guest's socket whose server ends the connection in order (`FAREWELL_PRIORITY`).
#define FAREWELL 5

// Room for the frame of a held packet: one from the wire, or one that GRO made of some, or of many.
#define FRAME_SMALL_BYTES 1600
#define FRAME_MIDDLE_BYTES 9600
#define FRAME_BIG_BYTES 65600

// Nobody needs it finer than by seconds.
#define LAST_SHIFT 30

// What happens to a flow's packets.
enum action {
	// As if there were no entry.
	NONE,
	// The client's packets wait in user space. Nothing leaves.
	HOLD,
	// The client's packets go to the peer. Nothing leaves.
	REDIRECT,
	// The flow is served here. With a lease, this node is a guest.
	MINE,
	// The client's packets are dropped. Nothing leaves.
	FENCE,
	// The end of HOLD: its packets are given back, and those that come wait behind them. What the socket sends leaves: a packet that
	// is dropped here is a sign of congestion for Linux.
	THAW,
};

// Addresses of IPv4 are mapped (::ffff:a.b.c.d).
struct flow_key {
	__u8 client[16];
	__u8 server[16];
	__be16 client_port;
	__be16 server_port;
};

struct flow {
	// A guest sends until then (CLOCK_MONOTONIC); 0: not a guest.
	__u64 lease_until_ns;
	// The entry is ignored from then on; 0: never. An expired HOLD of a guest is that guest's MINE.
	__u64 expires_ns;
	__u32 action;
	__u32 epoch;
	// The client's highest ACK, and the end of its data; `seen`: whether there was a packet. `held_end`: the end of what it
	// holds, above holes too.
	__u32 seen;
	__u32 ack;
	__u32 seq_end;
	// Next hop of REDIRECT, and of what is released from a HOLD; family 0: none.
	__u32 peer_device;
	__u32 peer_family;
	__u32 held_end;
	__u8 peer[16];
	// When a packet of the client came last, or user space wrote the entry: CLOCK_MONOTONIC, in units of 2^LAST_SHIFT ns.
	__u32 last;
	// The server that decided: user space's.
	__u32 owner;
};

struct counts {
	// Packets sent on to a peer; released ones and ICMP errors among them.
	__u64 forwarded;
	// Packets of frozen flows handed to user space.
	__u64 held;
	// Those for which the ring buffer had no room.
	__u64 ring_full;
	// Packets of the client dropped by FENCE.
	__u64 fenced;
	// Own packets of a flow that is held, fenced, or at a peer.
	__u64 silenced;
	// A guest's packets after the end of its lease.
	__u64 lease_over;
	// A guest's packets with SYN, FIN or RST.
	__u64 muted;
	// Fragments to a VIP.
	__u64 fragments;
	// Packets with IP options, or extension headers, to a VIP.
	__u64 options;
	// ICMP errors that followed a flow that is held, fenced, or at a peer.
	__u64 errors_followed;
	// Packets whose TTL or hop limit was used up.
	__u64 looped;
};

// A packet of a frozen flow, as it came in, from its Ethernet header on.
struct held {
	struct flow_key key;
	__u32 frame_bytes;
	// Payload of each segment of a packet that GRO made; 0: one from the wire.
	__u32 segment_bytes;
	__u32 device;
	__u8 frame[];
};
