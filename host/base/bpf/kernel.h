// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
// The few fields of the kernel's structures that are read. libbpf finds their places in the running kernel (CO-RE), so
// neither order nor size matters here.

#pragma once

#define AF_INET6 10
#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86dd
#define IPPROTO_TCP 6
#define SOL_TCP 6
#define TCP_NOTSENT_LOWAT 25
#define TCP_BPF_SNDCWND_CLAMP 1002
#define STATE_ESTABLISHED 1
#define STATE_CLOSE 7
#define STATE_CLOSE_WAIT 8
#define STATE_LISTEN 10
#define SNDBUF_LOCK 1
// May start I/O and file systems, and wait, in order to have memory.
#define GFP_KERNEL 0xcc0
#define CHRONO_WINDOW_LIMITED 2
#define CA_CWR 2
#define CA_RECOVERY 3
#define CA_LOSS 4
#define RCV_SHUTDOWN 1
#define BPF_NOEXIST 1
#define SCHED_NORMAL 0
#define BPF_F_NO_PREALLOC 1
#define BPF_F_MMAPABLE 1024
#define BPF_SK_STORAGE_GET_F_CREATE 1
#define BPF_LOCAL_STORAGE_GET_F_CREATE 1

enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_LPM_TRIE = 11,
	BPF_MAP_TYPE_SK_STORAGE = 24,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct in6_addr {
	union {
		__u8 u6_addr8[16];
	} in6_u;
};

struct net;

typedef struct {
	struct net *net;
} possible_net_t;

typedef struct {
	__s64 counter;
} atomic64_t;

typedef struct {
	int counter;
} atomic_t;

typedef struct {
	atomic_t refs;
} refcount_t;

struct sock_common {
	atomic64_t skc_cookie;
	possible_net_t skc_net;
	__u32 skc_daddr;
	__u32 skc_rcv_saddr;
	refcount_t skc_refcnt;
	__be16 skc_dport;
	__u16 skc_num;
	__u16 skc_family;
	volatile unsigned char skc_state;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
};

struct kernfs_node {
	__u64 id;
};

struct cgroup {
	int level;
	struct kernfs_node *kn;
	struct cgroup *ancestors[0];
};

struct sock_cgroup_data {
	struct cgroup *cgroup;
};

typedef struct {
	int owned;
} socket_lock_t;

typedef struct {
	__u32 val;
} kuid_t;

struct sock {
	struct sock_common __sk_common;
	kuid_t sk_uid;
	socket_lock_t sk_lock;
	struct {
		int len;
	} sk_backlog;
	__u16 sk_protocol;
	__u8 sk_shutdown;
	int sk_wmem_queued;
	int sk_sndbuf;
	__u8 sk_userlocks;
	__u8 sk_kern_sock : 1;
	__u32 sk_allocation;
	struct sock_cgroup_data sk_cgrp_data;
	unsigned long sk_tsq_flags;
};

struct inet_sock {
	struct sock sk;
};

struct sock;

struct tcp_congestion_ops {
	char name[16];
	void (*init)(struct sock *sk);
	__u32 (*ssthresh)(struct sock *sk);
	void (*cong_avoid)(struct sock *sk, __u32 ack, __u32 acked);
	__u32 (*undo_cwnd)(struct sock *sk);
};

struct inet_connection_sock {
	struct inet_sock icsk_inet;
	const struct tcp_congestion_ops *icsk_ca_ops;
	__u32 icsk_rto;
	__u8 icsk_ca_state : 5;
	__u8 icsk_retransmits;
};

struct minmax_sample {
	__u32 t;
	__u32 v;
};

struct minmax {
	struct minmax_sample s[3];
};

struct rb_node;

struct rb_root {
	struct rb_node *rb_node;
};

struct sk_buff;

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	__u32 rcv_nxt;
	__u32 copied_seq;
	struct rb_root out_of_order_queue;
	struct sk_buff *ooo_last_skb;
	__u32 rttvar_us;
	__u16 urg_data;
	__u32 snd_cwnd;
	__u32 snd_cwnd_cnt;
	__u32 snd_ssthresh;
	__u32 snd_cwnd_clamp;
	__u32 notsent_lowat;
	__u32 snd_wnd;
	__u32 mss_cache;
	__u32 srtt_us;
	struct minmax rtt_min;
	__u64 bytes_acked;
	__u32 write_seq;
	__u32 snd_una;
	__u32 snd_nxt;
	__u32 packets_out;
	__u32 sacked_out;
	__u32 lost_out;
	__u32 retrans_out;
	__u32 data_segs_out;
	__u32 total_retrans;
	__u32 delivered_ce;
	__u32 chrono_start;
	__u32 chrono_stat[3];
	__u8 chrono_type : 2;
	__u32 lsndtime;
};

struct net_device {
	possible_net_t nd_net;
};

struct skb_shared_info {
	unsigned short gso_segs;
};

struct sk_buff {
	struct net_device *dev;
	char cb[48];
	unsigned int len;
	unsigned int data_len;
	__be16 protocol;
	unsigned char *head;
	unsigned char *data;
	unsigned int end;
};

struct tcp_skb_cb {
	__u32 seq;
	__u32 end_seq;
	__u32 ack_seq;
};

struct sched_entity {
	__u64 sum_exec_runtime;
};

struct sched_ext_entity {
	__u32 flags;
	__u32 weight;
	__u64 dsq_vtime;
};

struct task_struct {
	unsigned int __state;
	int pid;
	int tgid;
	unsigned int policy;
	struct sched_entity se;
	struct sched_ext_entity scx;
	__u64 start_boottime;
	char comm[16];
};

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__tcp {
	struct bpf_iter_meta *meta;
	struct sock_common *sk_common;
};

struct bpf_iter__bpf_sk_storage_map {
	struct bpf_iter_meta *meta;
	void *value;
};

#pragma clang attribute pop
