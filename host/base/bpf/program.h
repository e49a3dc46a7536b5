// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
// What each program for the kernel begins with. The licence lets it call helpers for GPL programs.

#pragma once

#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_tracing.h>

#include "kernel.h"

// Makes an address readable that may be none: there it reads as 0. Linux 6.2.
extern void *bpf_rdonly_cast(const void *at, __u32 type) __ksym __weak;

char LICENSE[] SEC("license") = "Dual BSD/GPL";
