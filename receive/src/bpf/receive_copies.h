// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
// The end of that way: the process copies. From then on its thread is known (`struct reading`), and watched when it loses its
// core.

#pragma once

// What a thread reads from. `sk` may be gone: only its number says whether it is still that socket.
struct reading {
	struct sock *sk;
	__u64 cookie;
	struct row_key row;
	__u64 off_ns; // 0: it runs, or sleeps
	__u32 owned;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct reading);
} threads SEC(".maps");

// A bit by the number of each thread that is or was in `threads`: most switches are of others, and a bit costs less than a
// look into a task's storage.
#define READER_WORDS 1024
static __u64 readers[READER_WORDS];

static __always_inline int may_read(const struct task_struct *task)
{
	__u32 pid = task->pid;

	return readers[pid / 64 % READER_WORDS] >> pid % 64 & 1;
}

static __always_inline void note_reader(__u32 pid)
{
	__u64 *word = &readers[pid / 64 % READER_WORDS];

	if (!(*word >> pid % 64 & 1))
		__sync_fetch_and_or(word, 1ULL << pid % 64);
}

struct copying {
	struct watched *of;
	struct row *row;
	__u64 now_ns;
	__u32 copied_seq;
};

static long count(__u32 nth, struct copying *step)
{
	struct watched *of = step->of;
	struct row *row = step->row;
	struct arrival slot = of->ring[of->copied % ARRIVALS_MAX];

	if ((slot.flags & ARRIVAL_EVEN) != lap_of(of->copied)) {
		// Nothing has come since. But two cores that noted arrivals at once may have left it so: then TCP is further.
		if (nth || of->copied == of->processed)
			return 1;
		of->copied++;
		return 0;
	}
	if ((__s32)(slot.end - step->copied_seq) > 0)
		return 1;
	// TCP has not seen it: it will, or it was dropped on the way.
	if (slot.tcp_bin == BIN_NONE && of->copied == of->processed)
		return 1;
	of->copied++;
	add(row->to_tcp, slot.tcp_bin, slot.segments);
	if (slot.flags & ARRIVAL_BACKLOGGED)
		add(row->backlogged, slot.tcp_bin, slot.segments);
	if (slot.tcp_bin < BINS && !(slot.flags & ARRIVAL_AGAIN))
		add(row->to_copy, bin_of(step->now_ns - slot.at_ns), slot.segments);
	return 0;
}

// What a connection has counted goes to the row of its process.
static __always_inline void settle(struct watched *of, struct row *row)
{
	if (of->again)
		__sync_fetch_and_add(&row->again, of->again);
	if (of->unmeasured)
		__sync_fetch_and_add(&row->unmeasured, of->unmeasured);
	of->again = of->unmeasured = 0;
	most(&row->queue_bytes_most, of->queue_bytes_most);
	most(&row->backlog_bytes_most, of->backlog_bytes_most);
	most(&row->gap_bytes_most, of->gap_bytes_most);
	of->queue_bytes_most = of->backlog_bytes_most = of->gap_bytes_most = 0;
}

// Another process reads from it now.
static __always_inline void hand_over(struct watched *of, const struct row_key *to)
{
	struct row *row = bpf_map_lookup_elem(&rows, &of->row);

	if (row)
		settle(of, row);
	of->row = *to;
}

SEC("tp_btf/tcp_rcv_space_adjust")
int BPF_PROG(copied, struct sock *sk)
{
	struct copying step = {};
	struct watched_key key = {};
	struct row_key row_key = {};
	struct reading *reading;
	struct settings *set;
	struct tcp_sock *tp;
	struct watched *of;
	struct row *row;
	__u32 zero = 0;
	__u64 cookie;

	// Not by a process, if nobody owns the lock.
	if (!sk->sk_lock.owned || !service_of_socket(sk, &row_key.service))
		return 0;
	row_key.tgid = bpf_get_current_pid_tgid() >> 32;
	set = bpf_map_lookup_elem(&settings, &zero);
	if (!set || (set->meant.tgid && set->meant.tgid != row_key.tgid))
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return 0;
	key_of(sk, &key);
	of = watch(&key, &row_key.service);
	row = row_of(&row_key);
	if (!of || !row)
		return 0;
	if (of->row.tgid != row_key.tgid)
		hand_over(of, &row_key);
	step.of = of;
	step.row = row;
	step.now_ns = bpf_ktime_get_ns();
	note_queues(&of->left, tp, step.now_ns, 0);
	most(&row->queue_bytes_most, of->left.queue_bytes);
	most(&row->backlog_bytes_most, of->left.backlog_bytes);
	most(&row->gap_bytes_most, of->left.gap_bytes);
	step.copied_seq = tp->copied_seq;
	if (!count(0, &step))
		bpf_loop(ARRIVALS_MAX, count, &step, 0);
	reading = bpf_task_storage_get(&threads, bpf_get_current_task_btf(), 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	cookie = sk->__sk_common.skc_cookie.counter;
	if (reading && (!cookie || reading->cookie != cookie)) {
		reading->sk = sk;
		reading->cookie = bpf_get_socket_cookie(sk);
		reading->row = row_key;
		note_reader(bpf_get_current_pid_tgid());
	}
	return 0;
}

static __always_inline int owned(const struct reading *reading, __u32 *backlog_bytes)
{
	struct sock *sk = reading->sk;

	*backlog_bytes = BPF_CORE_READ(sk, sk_backlog.len);
	return owns_lock(sk, reading->cookie);
}

static __always_inline void leaves(struct reading *reading, struct task_struct *task, struct task_struct *next,
				   _Bool preempted)
{
	struct row *row = bpf_map_lookup_elem(&rows, &reading->row);
	__u32 backlog_bytes = 0;

	reading->off_ns = 0;
	if (!row)
		return;
	reading->owned = owned(reading, &backlog_bytes);
	if (!preempted && task->__state) {
		if (reading->owned)
			__sync_fetch_and_add(&row->slept_owning, 1);
		return;
	}
	reading->off_ns = bpf_ktime_get_ns();
	if (!reading->owned)
		return;
	__sync_fetch_and_add(&row->lost_owning, 1);
	row->owner_tid = task->pid;
	BPF_CORE_READ_INTO(&row->owner, task, comm);
	BPF_CORE_READ_INTO(&row->taker, next, comm);
}

static __always_inline void comes_back(struct reading *reading)
{
	struct row *row = bpf_map_lookup_elem(&rows, &reading->row);
	__u32 backlog_bytes = 0;

	if (row && reading->owned) {
		add(row->off_owning, bin_of(bpf_ktime_get_ns() - reading->off_ns), 1);
		if (owned(reading, &backlog_bytes) && backlog_bytes)
			__sync_fetch_and_add(&row->lost_with_backlog, 1);
	} else if (row) {
		add(row->off_free, bin_of(bpf_ktime_get_ns() - reading->off_ns), 1);
	}
	reading->off_ns = 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(switched, _Bool preempted, struct task_struct *prev, struct task_struct *next)
{
	struct reading *reading;

	reading = may_read(prev) ? bpf_task_storage_get(&threads, prev, 0, 0) : 0;
	if (reading)
		leaves(reading, prev, next, preempted);
	reading = may_read(next) ? bpf_task_storage_get(&threads, next, 0, 0) : 0;
	if (reading && reading->off_ns)
		comes_back(reading);
	return 0;
}
