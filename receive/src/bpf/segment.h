// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
// Reads a TCP segment as a network device hands it over, when its headers are not parsed yet.

#pragma once

#define IPV4_BYTES 20
#define IPV6_BYTES 40
#define TCP_BYTES 20

static __always_inline __u32 half(const __u8 *octets)
{
	return (__u32)octets[0] << 8 | octets[1];
}

// The ends of a segment's connection, and the sequence number behind it. 0 if it is none, has no data, or its headers are not
// in one piece. `octets`: the headers, of which one read takes all where IPv4 has no options.
static __always_inline int parse(struct sk_buff *skb, struct watched_key *key, __u32 *end)
{
	__u32 in_one_piece = skb->len - skb->data_len, header, total;
	__u8 octets[IPV6_BYTES + TCP_BYTES], *tcp;
	unsigned char *at = skb->data;

	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		tcp = octets + IPV4_BYTES;
		if (in_one_piece < IPV4_BYTES + TCP_BYTES ||
		    bpf_probe_read_kernel(octets, IPV4_BYTES + TCP_BYTES, at) || octets[9] != IPPROTO_TCP)
			return 0;
		header = (octets[0] & 15) * 4;
		if (header != IPV4_BYTES && (in_one_piece < header + TCP_BYTES ||
					     bpf_probe_read_kernel(tcp, TCP_BYTES, at + header)))
			return 0;
		total = half(octets + 2);
		key->local[2] = key->peer[2] = IPV4_AS_IPV6;
		__builtin_memcpy(&key->peer[3], octets + 12, 4);
		__builtin_memcpy(&key->local[3], octets + 16, 4);
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		tcp = octets + IPV6_BYTES;
		if (in_one_piece < IPV6_BYTES + TCP_BYTES ||
		    bpf_probe_read_kernel(octets, IPV6_BYTES + TCP_BYTES, at) || octets[6] != IPPROTO_TCP)
			return 0;
		header = IPV6_BYTES;
		total = half(octets + 4) ? half(octets + 4) + IPV6_BYTES : 0;
		__builtin_memcpy(key->peer, octets + 8, 16);
		__builtin_memcpy(key->local, octets + 24, 16);
	} else {
		return 0;
	}
	// 0: longer than the field can say.
	if (!total)
		total = skb->len;
	header += (tcp[12] >> 4) * 4;
	if (total <= header || total > skb->len)
		return 0;
	key->net = (__u64)skb->dev->nd_net.net;
	key->peer_port = half(tcp);
	key->local_port = half(tcp + 2);
	*end = (half(tcp + 4) << 16 | half(tcp + 6)) + total - header;
	return 1;
}
