// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
// What each program for the kernel begins with. The licence lets it call helpers for GPL programs.

#pragma once

#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_tracing.h>

#include "kernel.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";
