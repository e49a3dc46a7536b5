// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
// Tells a byte for each record in a map of `tune` (an iterator, iter/bpf_sk_storage_map), whatever namespace its socket is in. A map
// without records has nothing left to undo.

#include "program.h"

SEC("iter/bpf_sk_storage_map")
int records(struct bpf_iter__bpf_sk_storage_map *context)
{
	__u8 one = 1;

	if (context->value)
		bpf_seq_write(context->meta->seq, &one, sizeof(one));
	return 0;
}
