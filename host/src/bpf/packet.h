// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
// Reads a packet: which flow it belongs to, and what TCP says.

#pragma once

#define ETH_BYTES 14
#define IPV4_BYTES 20
#define IPV6_BYTES 40
#define ICMP_BYTES 8
#define TCP_BYTES 20
#define TCP_OPTIONS_BYTES_MAX 40
#define TCP_OPTION_END 0
#define TCP_OPTION_NOP 1
#define TCP_OPTION_SACK 5
// Options that are looked at. More: the SACK behind them is not seen; clients have it third at most.
#define TCP_OPTIONS_LOOKS 8
#define SACK_BLOCKS_MAX 4
// Flag "more fragments", and the offset.
#define FRAGMENT_BITS 0x3fff
#define NEXT_HOP_OPTIONS 0
#define NEXT_ROUTING 43
#define NEXT_FRAGMENT 44
#define NEXT_DESTINATION_OPTIONS 60
#define ICMP_UNREACHABLE 3
#define ICMP_TIME_EXCEEDED 11
#define ICMP_PARAMETER 12
// Destination unreachable, packet too big, time exceeded, parameter problem.
#define ICMPV6_ERROR_LAST 4

enum kind {
	OTHER,
	TCP,
	// An ICMP error about a packet that a flow's server sent.
	ERROR,
	FRAGMENT,
	OPTIONS,
};

struct packet {
	struct flow_key key;
	__u32 seq_end;
	__u32 ack;
	// The end of what the client holds: its ACK, or the highest edge of what it has selectively acknowledged (RFC 2018).
	__u32 held_end;
	__u8 has_ack;
	// SYN without ACK: a new connection.
	__u8 opens;
	// SYN, FIN or RST.
	__u8 bounds;
	__u8 is_ipv6;
	// TTL or hop limit, and what stands beside it in IPv4.
	__u8 ttl;
	__u8 protocol;
};


static __always_inline void map_ipv4(__u8 *to, __be32 address)
{
	__builtin_memset(to, 0, 10);
	to[10] = to[11] = 0xff;
	__builtin_memcpy(to + 12, &address, 4);
}

static __always_inline int is_same(const struct in6_addr *one, const struct in6_addr *other)
{
	const __be32 *left = one->in6_u.u6_addr32, *right = other->in6_u.u6_addr32;

	return left[0] == right[0] && left[1] == right[1] && left[2] == right[2] && left[3] == right[3];
}

// Of the options; the mask is for the verifier.
static __always_inline __u32 word_at(const __u8 *options, __u32 at)
{
	return options[at & 63] << 24 | options[(at + 1) & 63] << 16 | options[(at + 2) & 63] << 8 | options[(at + 3) & 63];
}

static __always_inline void read_blocks(struct packet *packet, const __u8 *options, __u32 at, __u32 bytes)
{
	for (__u32 block = 0; block < SACK_BLOCKS_MAX && 8 * block + 8 <= bytes; block++) {
		__u32 edge = word_at(options, at + 8 * block + 4);

		if ((__s32)(edge - packet->held_end) > 0)
			packet->held_end = edge;
	}
}

static __always_inline void read_sack(struct __sk_buff *skb, struct packet *packet, __u32 at, __u32 bytes)
{
	__u8 options[64] = {};
	__u32 next = 0;

	if (bytes == 0 || bytes > TCP_OPTIONS_BYTES_MAX || bpf_skb_load_bytes(skb, at, options, bytes))
		return;
	for (__u32 looks = 0; looks < TCP_OPTIONS_LOOKS && next < bytes; looks++) {
		__u8 kind = options[next & 63], len = options[(next + 1) & 63];

		if (kind == TCP_OPTION_END)
			return;
		if (kind == TCP_OPTION_NOP) {
			next++;
			continue;
		}
		if (len < 2)
			return;
		if (kind == TCP_OPTION_SACK)
			return read_blocks(packet, options, next + 2, len - 2);
		next += len;
	}
}

// `ip_payload`: bytes behind the IP header.
static __always_inline enum kind read_tcp(struct __sk_buff *skb, struct packet *packet, __u32 at, __u32 ip_payload, int in)
{
	struct tcphdr tcp;

	if (bpf_skb_load_bytes(skb, at, &tcp, sizeof(tcp)))
		return OTHER;
	packet->key.client_port = in ? tcp.source : tcp.dest;
	packet->key.server_port = in ? tcp.dest : tcp.source;
	packet->has_ack = tcp.ack;
	packet->ack = packet->held_end = bpf_ntohl(tcp.ack_seq);
	// Two NOPs and one block take twelve bytes.
	if (in && tcp.ack && tcp.doff * 4 >= TCP_BYTES + 12)
		read_sack(skb, packet, at + TCP_BYTES, tcp.doff * 4 - TCP_BYTES);
	packet->seq_end = bpf_ntohl(tcp.seq) + ip_payload - tcp.doff * 4 + tcp.syn + tcp.fin;
	packet->opens = tcp.syn && !tcp.ack;
	packet->bounds = tcp.syn | tcp.fin | tcp.rst;
	return TCP;
}

// The inner packet is one that the server sent. Only the first four bytes of its TCP are needed.
static __always_inline enum kind read_inner_ports(struct __sk_buff *skb, struct packet *packet, __u32 at)
{
	__be16 ports[2];

	if (bpf_skb_load_bytes(skb, at, ports, sizeof(ports)))
		return OTHER;
	packet->key.server_port = ports[0];
	packet->key.client_port = ports[1];
	return ERROR;
}

static __always_inline enum kind read_error_ipv4(struct __sk_buff *skb, struct packet *packet, const struct iphdr *outer)
{
	__u32 at = ETH_BYTES + IPV4_BYTES;
	struct iphdr inner;
	__u8 type;

	if (outer->ihl != 5 || outer->frag_off & bpf_htons(FRAGMENT_BITS) || bpf_skb_load_bytes(skb, at, &type, 1))
		return OTHER;
	if (type != ICMP_UNREACHABLE && type != ICMP_TIME_EXCEEDED && type != ICMP_PARAMETER)
		return OTHER;
	if (bpf_skb_load_bytes(skb, at + ICMP_BYTES, &inner, sizeof(inner)))
		return OTHER;
	if (inner.protocol != IPPROTO_TCP || inner.ihl != 5 || inner.saddr != outer->daddr)
		return OTHER;
	map_ipv4(packet->key.client, inner.daddr);
	map_ipv4(packet->key.server, inner.saddr);
	return read_inner_ports(skb, packet, at + ICMP_BYTES + IPV4_BYTES);
}

static __always_inline enum kind read_ipv4(struct __sk_buff *skb, struct packet *packet, int in)
{
	struct iphdr ip;

	if (bpf_skb_load_bytes(skb, ETH_BYTES, &ip, sizeof(ip)))
		return OTHER;
	packet->ttl = ip.ttl;
	packet->protocol = ip.protocol;
	if (ip.protocol == IPPROTO_ICMP && in)
		return read_error_ipv4(skb, packet, &ip);
	if (ip.protocol != IPPROTO_TCP)
		return OTHER;
	map_ipv4(packet->key.client, in ? ip.saddr : ip.daddr);
	map_ipv4(packet->key.server, in ? ip.daddr : ip.saddr);
	if (ip.frag_off & bpf_htons(FRAGMENT_BITS))
		return FRAGMENT;
	if (ip.ihl != 5)
		return OPTIONS;
	// A packet that GRO has made larger than the field holds has 0 there (BIG TCP).
	return read_tcp(skb, packet, ETH_BYTES + IPV4_BYTES, (bpf_ntohs(ip.tot_len) ?: skb->len - ETH_BYTES) - IPV4_BYTES, in);
}

static __always_inline enum kind read_error_ipv6(struct __sk_buff *skb, struct packet *packet, const struct ipv6hdr *outer)
{
	__u32 at = ETH_BYTES + IPV6_BYTES;
	struct ipv6hdr inner;
	__u8 type;

	if (bpf_skb_load_bytes(skb, at, &type, 1) || type == 0 || type > ICMPV6_ERROR_LAST)
		return OTHER;
	if (bpf_skb_load_bytes(skb, at + ICMP_BYTES, &inner, sizeof(inner)) || inner.nexthdr != IPPROTO_TCP)
		return OTHER;
	if (!is_same(&inner.saddr, &outer->daddr))
		return OTHER;
	__builtin_memcpy(packet->key.client, &inner.daddr, sizeof(inner.daddr));
	__builtin_memcpy(packet->key.server, &inner.saddr, sizeof(inner.saddr));
	return read_inner_ports(skb, packet, at + ICMP_BYTES + IPV6_BYTES);
}

static __always_inline enum kind read_ipv6(struct __sk_buff *skb, struct packet *packet, int in)
{
	struct ipv6hdr ip;
	__u8 next;

	if (bpf_skb_load_bytes(skb, ETH_BYTES, &ip, sizeof(ip)))
		return OTHER;
	packet->is_ipv6 = 1;
	packet->ttl = ip.hop_limit;
	__builtin_memcpy(packet->key.client, in ? &ip.saddr : &ip.daddr, sizeof(ip.saddr));
	__builtin_memcpy(packet->key.server, in ? &ip.daddr : &ip.saddr, sizeof(ip.saddr));
	switch (ip.nexthdr) {
	case IPPROTO_TCP:
		return read_tcp(skb, packet, ETH_BYTES + IPV6_BYTES, bpf_ntohs(ip.payload_len) ?: skb->len - ETH_BYTES - IPV6_BYTES, in);
	case IPPROTO_ICMPV6:
		return in ? read_error_ipv6(skb, packet, &ip) : OTHER;
	case NEXT_FRAGMENT:
		if (bpf_skb_load_bytes(skb, ETH_BYTES + IPV6_BYTES, &next, 1))
			return OTHER;
		return next == IPPROTO_TCP ? FRAGMENT : OTHER;
	case NEXT_HOP_OPTIONS:
	case NEXT_ROUTING:
	case NEXT_DESTINATION_OPTIONS:
		return OPTIONS;
	default:
		return OTHER;
	}
}

// `in`: from a client; otherwise to one. What has a VLAN tag is read on the device of that VLAN, where it has none.
static __always_inline enum kind read_packet(struct __sk_buff *skb, struct packet *packet, int in)
{
	if (skb->vlan_present)
		return OTHER;
	if (skb->protocol == bpf_htons(ETH_P_IP))
		return read_ipv4(skb, packet, in);
	if (skb->protocol == bpf_htons(ETH_P_IPV6))
		return read_ipv6(skb, packet, in);
	return OTHER;
}
