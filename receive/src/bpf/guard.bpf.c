// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
// Tells user space when a usual task loses its core while it owns the lock of a TCP socket from which it receives, and when
// its call has ended. It changes nothing: user space raises the task, and takes that back.

#include "program.h"
#include "guard.h"
#include "receiver.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct meant);
} settings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, EVENTS_BYTES_MAX);
} events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct guard_missed);
} missed SEC(".maps");

// `sk` may be gone (owns_lock).
struct turn {
	struct sock *sk;
	__u64 cookie;
	__u64 in_ns; // it has the core since then
	__u64 ran_ns;
	__u32 is_open; // EVENT_LOST was told, EVENT_ENDED not yet
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct turn);
} turns SEC(".maps");

static __always_inline int tell(struct task_struct *task, struct turn *turn, __u32 kind, __u32 has_backlog)
{
	struct event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	struct guard_missed *count;
	__u32 zero = 0;

	if (!event) {
		count = bpf_map_lookup_elem(&missed, &zero);
		if (count)
			__sync_fetch_and_add(&count->events, 1);
		return 0;
	}
	event->at_ns = bpf_ktime_get_ns();
	event->ran_ns = turn->ran_ns;
	event->started_ns = task->start_boottime;
	event->tid = task->pid;
	event->tgid = task->tgid;
	event->kind = kind;
	event->has_backlog = has_backlog;
	bpf_ringbuf_submit(event, BPF_RB_FORCE_WAKEUP);
	return 1;
}

static __always_inline void end(struct task_struct *task, struct turn *turn)
{
	if (turn->in_ns)
		turn->ran_ns += bpf_ktime_get_ns() - turn->in_ns;
	turn->in_ns = 0;
	turn->is_open = 0;
	tell(task, turn, EVENT_ENDED, 0);
}

SEC("tp_btf/tcp_rcv_space_adjust")
int BPF_PROG(receives, struct sock *sk)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct meant *of;
	struct turn *turn;
	__u32 zero = 0;

	of = bpf_map_lookup_elem(&settings, &zero);
	if (!of || !sk->sk_lock.owned || task->policy != SCHED_NORMAL || !is_meant(sk, of))
		return 0;
	turn = bpf_task_storage_get(&turns, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!turn)
		return 0;
	turn->sk = sk;
	turn->cookie = bpf_get_socket_cookie(sk);
	return 0;
}

SEC("tp_btf/sock_recv_length")
int BPF_PROG(received, struct sock *sk)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct turn *turn = bpf_task_storage_get(&turns, task, 0, 0);

	if (turn && turn->is_open)
		end(task, turn);
	return 0;
}

static __always_inline void leaves(struct task_struct *task, struct turn *turn, _Bool preempted)
{
	struct sock *sk = turn->sk;
	int is_owned = owns_lock(sk, turn->cookie);
	__u64 now = bpf_ktime_get_ns();

	// Asleep, without the lock, or of a class by now that is never touched.
	if (!is_owned || (!preempted && task->__state) || task->policy != SCHED_NORMAL) {
		if (turn->is_open)
			end(task, turn);
		return;
	}
	if (turn->is_open) {
		if (turn->in_ns)
			turn->ran_ns += now - turn->in_ns;
		turn->in_ns = 0;
		return;
	}
	turn->ran_ns = turn->in_ns = 0;
	turn->is_open = tell(task, turn, EVENT_LOST, BPF_CORE_READ(sk, sk_backlog.len) != 0);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(switched, _Bool preempted, struct task_struct *prev, struct task_struct *next)
{
	struct turn *turn = bpf_task_storage_get(&turns, prev, 0, 0);

	if (turn)
		leaves(prev, turn, preempted);
	turn = bpf_task_storage_get(&turns, next, 0, 0);
	if (turn && turn->is_open)
		turn->in_ns = bpf_ktime_get_ns();
	return 0;
}
