// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
// The flow switch: sends the packets of a connection that has moved to the node that owns it, holds those of one that is frozen,
// and lets a guest send only while its lease is valid. It stands on each client-facing device, on both sides (tcx, Linux 6.6).
// User space decides all (host/src/handoff/switch.rs); a flow without an entry, and any other packet, passes.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "flows.h"
#include "packet.h"

#define AF_INET 2
#define AF_INET6 10
// The frame is for this device (linux/if_packet.h).
#define PACKET_HOST 0
// tcx's verdicts: the next program is asked; the packet is dropped.
#define PASS -1
#define DROP 2

char LICENSE[] SEC("license") = "Dual BSD/GPL";

// Not LRU: an entry that is gone would let two nodes send. Full: user space is refused.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, FLOWS_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct flow_key);
	__type(value, struct flow);
} flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, VIPS_MAX);
	__type(key, struct in6_addr);
	__type(value, __u32);
} vips SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counts);
} counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, RING_BYTES);
} held_packets SEC(".maps");

static __always_inline struct counts *counted(void)
{
	__u32 only = 0;

	return bpf_map_lookup_elem(&counts, &only);
}

#define COUNT(field)                                                           \
	do {                                                                       \
		struct counts *all = counted();                                        \
		if (all)                                                               \
			__sync_fetch_and_add(&all->field, 1);                              \
	} while (0)

static __always_inline enum action action_now(const struct flow *flow)
{
	if (!flow->expires_ns || bpf_ktime_get_ns() < flow->expires_ns)
		return flow->action;
	if (flow->action != HOLD && flow->action != THAW)
		return NONE;
	return flow->lease_until_ns ? MINE : NONE;
}

// The connection is over, and its entry stays for packets on their way. MINE ends, too, while the connection goes on.
static __always_inline int is_forgotten(const struct flow *flow, enum action action)
{
	return flow->expires_ns && (action == REDIRECT || action == FENCE);
}

// Once a second it writes; the other packets read alone.
static __always_inline void note(struct flow *flow)
{
	__u32 now = bpf_ktime_get_coarse_ns() >> LAST_SHIFT;

	if (flow->last != now)
		flow->last = now;
}

// Two cores may do this at once; then one of them may be lost until the next packet.
static __always_inline void track(struct flow *flow, const struct packet *packet)
{
	if (!packet->has_ack)
		return;
	if (!flow->seen || (__s32)(packet->ack - flow->ack) > 0)
		flow->ack = packet->ack;
	if (!flow->seen || (__s32)(packet->seq_end - flow->seq_end) > 0)
		flow->seq_end = packet->seq_end;
	if (!flow->seen || (__s32)(packet->held_end - flow->held_end) > 0)
		flow->held_end = packet->held_end;
	flow->seen = 1;
}

static __always_inline void lower_ttl(struct __sk_buff *skb, const struct packet *packet)
{
	__u8 ttl = packet->ttl - 1;

	if (packet->is_ipv6) {
		bpf_skb_store_bytes(skb, ETH_BYTES + offsetof(struct ipv6hdr, hop_limit), &ttl, 1, BPF_F_RECOMPUTE_CSUM);
		return;
	}
	// TTL and protocol are one word of the header's checksum.
	bpf_l3_csum_replace(skb, ETH_BYTES + offsetof(struct iphdr, check), bpf_htons(packet->ttl << 8 | packet->protocol),
		bpf_htons(ttl << 8 | packet->protocol), 2);
	bpf_skb_store_bytes(skb, ETH_BYTES + offsetof(struct iphdr, ttl), &ttl, 1, 0);
}

// The kernel finds the peer's MAC, and asks for it if it has none.
static __always_inline int to_peer(struct __sk_buff *skb, const struct packet *packet, const struct flow *flow)
{
	struct bpf_redir_neigh next = {};

	if (packet->ttl < 2) {
		COUNT(looped);
		return DROP;
	}
	lower_ttl(skb, packet);
	next.nh_family = flow->peer_family;
	if (flow->peer_family == AF_INET)
		__builtin_memcpy(&next.ipv4_nh, flow->peer + 12, 4);
	else
		__builtin_memcpy(next.ipv6_nh, flow->peer, 16);
	COUNT(forwarded);
	return bpf_redirect_neigh(flow->peer_device, &next, sizeof(next), 0);
}

static __always_inline int keep(struct __sk_buff *skb, const struct packet *packet, __u32 room)
{
	struct held *held = bpf_ringbuf_reserve(&held_packets, sizeof(*held) + room, 0);
	__u64 len = skb->len;

	if (!held) {
		COUNT(ring_full);
		return DROP;
	}
	held->key = packet->key;
	held->frame_bytes = len;
	held->segment_bytes = skb->gso_size;
	held->device = skb->ifindex;
	if (len < ETH_BYTES)
		goto no;
	// Two bounds, which clang must not make one of: the verifier would see neither.
	asm volatile("" : "+r"(len));
	if (len > room || bpf_skb_load_bytes(skb, 0, held->frame, len))
		goto no;
	bpf_ringbuf_submit(held, 0);
	COUNT(held);
	return DROP;
no:
	bpf_ringbuf_discard(held, 0);
	COUNT(ring_full);
	return DROP;
}

static __always_inline int hold(struct __sk_buff *skb, const struct packet *packet)
{
	if (skb->len <= FRAME_SMALL_BYTES)
		return keep(skb, packet, FRAME_SMALL_BYTES);
	if (skb->len <= FRAME_MIDDLE_BYTES)
		return keep(skb, packet, FRAME_MIDDLE_BYTES);
	return keep(skb, packet, FRAME_BIG_BYTES);
}

static __always_inline int switch_flow(struct __sk_buff *skb, struct packet *packet, enum kind kind)
{
	struct flow *flow = bpf_map_lookup_elem(&flows, &packet->key);
	enum action action = flow ? action_now(flow) : NONE;

	if (!flow || action == NONE)
		return PASS;
	if (kind == TCP && packet->opens && is_forgotten(flow, action)) {
		// The client uses its port again.
		bpf_map_delete_elem(&flows, &packet->key);
		return PASS;
	}
	if (kind == TCP) {
		note(flow);
		track(flow, packet);
	}
	if (kind == ERROR && action != MINE)
		COUNT(errors_followed);
	switch (action) {
	case HOLD:
	case THAW:
		return hold(skb, packet);
	case REDIRECT:
		return to_peer(skb, packet, flow);
	case FENCE:
		COUNT(fenced);
		return DROP;
	default:
		return PASS;
	}
}

static __always_inline int is_vip(const struct packet *packet)
{
	return bpf_map_lookup_elem(&vips, packet->key.server) != 0;
}

SEC("tcx/ingress")
int flows_in(struct __sk_buff *skb)
{
	struct packet packet = {};
	enum kind kind;

	// A held one comes back.
	if (skb->mark == RELEASED) {
		skb->mark = 0;
		return PASS;
	}
	// A frame for another node, which a bridge or switch has sent to all, is that node's to send on.
	if (skb->pkt_type != PACKET_HOST)
		return PASS;
	kind = read_packet(skb, &packet, 1);
	switch (kind) {
	case TCP:
	case ERROR:
		return switch_flow(skb, &packet, kind);
	case FRAGMENT:
		// Its flow is not known: the own stack would answer by RST for one that is elsewhere.
		if (!is_vip(&packet))
			return PASS;
		COUNT(fragments);
		return DROP;
	case OPTIONS:
		if (!is_vip(&packet))
			return PASS;
		COUNT(options);
		return DROP;
	default:
		return PASS;
	}
}

static __always_inline int as_guest(const struct __sk_buff *skb, const struct packet *packet, const struct flow *flow)
{
	if (!flow->lease_until_ns)
		return PASS;
	// SYN: the client has sent RST and comes again by the same port, before home knows. Home answers the next SYN.
	if (packet->bounds && skb->priority != FAREWELL) {
		COUNT(muted);
		return DROP;
	}
	if (bpf_ktime_get_ns() >= flow->lease_until_ns) {
		COUNT(lease_over);
		return DROP;
	}
	return PASS;
}

// From user space: to the peer that is known by now, or into the own stack, as if it came in now.
static __always_inline int release(struct __sk_buff *skb)
{
	struct packet packet = {};
	struct flow *flow = 0;
	enum kind kind = read_packet(skb, &packet, 1);

	if (kind == TCP || kind == ERROR)
		flow = bpf_map_lookup_elem(&flows, &packet.key);
	if (!flow || !flow->peer_family)
		return bpf_redirect(skb->ifindex, BPF_F_INGRESS);
	skb->mark = 0;
	return to_peer(skb, &packet, flow);
}

SEC("tcx/egress")
int flows_out(struct __sk_buff *skb)
{
	struct packet packet = {};
	struct flow *flow;

	if (skb->mark == RELEASED)
		return release(skb);
	if (read_packet(skb, &packet, 0) != TCP)
		return PASS;
	flow = bpf_map_lookup_elem(&flows, &packet.key);
	if (!flow)
		return PASS;
	switch (action_now(flow)) {
	case NONE:
		return PASS;
	case MINE:
	case THAW:
		return as_guest(skb, &packet, flow);
	default:
		COUNT(silenced);
		return DROP;
	}
}
