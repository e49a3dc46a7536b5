// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
// Reads a TCP segment as a network device hands it over, when its headers are not parsed yet.

#pragma once

static __always_inline int load(void *to, __u32 size, const unsigned char *from)
{
	return bpf_probe_read_kernel(to, size, from);
}

// A segment's TCP header and length, and the ends of its connection. 0 if it is none, or its headers are not in one piece.
static __always_inline int parse(struct sk_buff *skb, struct watched_key *key, __u32 *end)
{
	unsigned char *at = skb->data;
	__u32 in_one_piece = skb->len - skb->data_len, header, total, seq;
	__u8 first, kind, offset;
	__u16 word, ports_of[2];

	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		if (in_one_piece < 40 || load(&first, 1, at) || load(&kind, 1, at + 9) || load(&word, 2, at + 2))
			return 0;
		header = (first & 15) * 4;
		total = bpf_ntohs(word);
		key->local.address[10] = key->local.address[11] = 0xff;
		key->peer.address[10] = key->peer.address[11] = 0xff;
		load(key->peer.address + 12, 4, at + 12);
		load(key->local.address + 12, 4, at + 16);
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		if (in_one_piece < 60 || load(&kind, 1, at + 6) || load(&word, 2, at + 4))
			return 0;
		header = 40;
		total = word ? bpf_ntohs(word) + 40 : 0;
		load(key->peer.address, 16, at + 8);
		load(key->local.address, 16, at + 24);
	} else {
		return 0;
	}
	// 0: longer than the field can say.
	if (!total)
		total = skb->len;
	if (kind != IPPROTO_TCP || in_one_piece < header + 20 || load(ports_of, 4, at + header) ||
	    load(&seq, 4, at + header + 4) || load(&offset, 1, at + header + 12))
		return 0;
	header += (offset >> 4) * 4;
	if (total <= header || total > skb->len)
		return 0;
	key->net = (__u64)skb->dev->nd_net.net;
	key->peer.port = bpf_ntohs(ports_of[0]);
	key->local.port = bpf_ntohs(ports_of[1]);
	*end = bpf_ntohl(seq) + total - header;
	return 1;
}
