// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
// Which receive calls `receive` is about, and whether a thread that reads from a socket owns its lock.

#pragma once

#include "ports.h"

struct meant {
	__u32 by_port;
	__u32 tgid; // 0: all processes
};

// Whether the present process receives from a socket that is meant, by the port of either end.
static __always_inline int is_meant(const struct sock *sk, const struct meant *of)
{
	if (of->tgid && of->tgid != bpf_get_current_pid_tgid() >> 32)
		return 0;
	return !of->by_port || is_port(sk->__sk_common.skc_num) || is_port(bpf_ntohs(sk->__sk_common.skc_dport));
}

// `sk` may be gone: only its number says whether it is still that socket.
static __always_inline int owns_lock(struct sock *sk, __u64 cookie)
{
	return BPF_CORE_READ(sk, __sk_common.skc_cookie.counter) == cookie && BPF_CORE_READ(sk, sk_lock.owned);
}
