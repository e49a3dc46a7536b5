// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
// A scheduler (sched_ext) with Wu and Crawford's rule: a thread whose slice ends while it owns the lock of
// a TCP socket runs on until its receive call ends, gives its core away then, and is charged for all of it.
//
// Each core has a queue in the order of virtual time, which is CPU time over weight. A turn is not part of it at once: it is
// owed, and paid with half of what the thread would get later, as core's turn.rs has it (`Account`). Who had to pay at once would
// stand still for long, perhaps with the lock. Work moves to another core only when it wakes.

#include "program.h"
#include "receiver.h"
#include "guard.h"

#define DSQ_LOCAL 0x8000000000000002ULL // SCX_DSQ_LOCAL
#define TASK_QUEUED 1 // SCX_TASK_QUEUED
#define ENQ_WAKEUP 1 // SCX_ENQ_WAKEUP
#define OPS_ENQ_MIGRATION_DISABLED 16 // SCX_OPS_ENQ_MIGRATION_DISABLED
#define KICK_PREEMPT 2 // SCX_KICK_PREEMPT
#define WEIGHT_USUAL 100
// Nice 19 has 1. Beside a hundred busy threads it would wait for half a minute, after which the kernel ends the scheduler.
#define WEIGHT_LEAST 10

enum scx_exit_kind { SCX_EXIT_NONE };

struct scx_exit_info {
	enum scx_exit_kind kind;
} __attribute__((preserve_access_index));

// Those of its members that are set here; libbpf finds their places by their names.
struct sched_ext_ops {
	__s32 (*select_cpu)(struct task_struct *, __s32, __u64);
	void (*enqueue)(struct task_struct *, __u64);
	void (*dispatch)(__s32, struct task_struct *);
	void (*running)(struct task_struct *);
	void (*stopping)(struct task_struct *, _Bool);
	void (*enable)(struct task_struct *);
	__s32 (*init)(void);
	void (*exit)(struct scx_exit_info *);
	__u64 flags;
	char name[128];
};

extern __s32 scx_bpf_create_dsq(__u64 queue, __s32 node) __ksym;
extern void scx_bpf_dsq_insert(struct task_struct *task, __u64 queue, __u64 slice_ns, __u64 flags) __ksym;
extern void scx_bpf_dsq_insert_vtime(struct task_struct *task, __u64 queue, __u64 slice_ns, __u64 vtime, __u64 flags) __ksym;
extern struct task_struct *scx_bpf_dsq_peek(__u64 queue) __ksym;
extern _Bool scx_bpf_dsq_move_to_local(__u64 queue) __ksym;
extern __s32 scx_bpf_select_cpu_dfl(struct task_struct *task, __s32 core, __u64 flags, _Bool *is_idle) __ksym;
extern _Bool scx_bpf_task_set_slice(struct task_struct *task, __u64 slice_ns) __ksym;
extern _Bool scx_bpf_task_set_dsq_vtime(struct task_struct *task, __u64 vtime) __ksym;
extern __s32 scx_bpf_task_cpu(const struct task_struct *task) __ksym;
extern void scx_bpf_kick_cpu(__s32 core, __u64 flags) __ksym;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct guard_settings);
} settings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct guard_counts);
} counts SEC(".maps");

// The virtual time of a core: at which whoever runs there came to run. It never goes back. (Start-time fair queueing: Goyal,
// Vin and Cheng, 1996.)
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CORES_MAX);
	__type(key, __u32);
	__type(value, __u64);
} nows SEC(".maps");

// `sk` may be gone (owns_lock).
struct thread {
	struct sock *sk;
	__u64 cookie;
	__u64 ran_ns; // in all its life, when it came to run
	__u64 turn_ns; // likewise, when its turn began
	__u64 free_ns; // turns since it came to run: not part of virtual time yet
	__u64 owed_ns;
	__s32 core_after; // the number of its core, and one; 0: it has never run
	__u32 in_turn;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread);
} threads SEC(".maps");

static __always_inline struct guard_settings *set(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&settings, &zero);
}

static __always_inline struct guard_counts *counted(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&counts, &zero);
}

static __always_inline int owns(const struct thread *thread)
{
	return thread->sk && owns_lock(thread->sk, thread->cookie);
}

static __always_inline void end_turn(struct task_struct *task, struct thread *thread)
{
	__u64 took_ns = task->se.sum_exec_runtime - thread->turn_ns;
	struct guard_counts *count = counted();

	thread->in_turn = 0;
	thread->free_ns += took_ns;
	thread->owed_ns += took_ns;
	if (count)
		__sync_fetch_and_add(&count->charged_ns, took_ns);
}

static __always_inline __u64 weight_of(const struct task_struct *task)
{
	__u64 weight = task->scx.weight;

	if (!weight)
		return WEIGHT_USUAL;
	return weight > WEIGHT_LEAST ? weight : WEIGHT_LEAST;
}

SEC("struct_ops/select_cpu")
__s32 BPF_PROG(select_core, struct task_struct *task, __s32 last, __u64 flags)
{
	struct guard_settings *of = set();
	_Bool is_idle = 0;
	__s32 core = scx_bpf_select_cpu_dfl(task, last, flags, &is_idle);

	if (is_idle && of)
		scx_bpf_dsq_insert(task, DSQ_LOCAL, of->slice_ns, 0);
	return core;
}

// Each core has a time of its own, so a thread that comes from another one begins anew.
static __always_inline int is_new(const struct thread *thread, __s32 core)
{
	return !thread || thread->core_after != core + 1;
}

SEC("struct_ops/enqueue")
void BPF_PROG(enqueue, struct task_struct *task, __u64 flags)
{
	struct thread *thread = bpf_task_storage_get(&threads, task, 0, 0);
	__u64 vtime = task->scx.dsq_vtime, *now;
	struct guard_settings *of = set();
	__s32 core = scx_bpf_task_cpu(task);

	now = bpf_map_lookup_elem(&nows, &core);
	if (!of || !now)
		return;
	// Who has slept has saved nothing up: one who sleeps a little in each round would get far more than its share.
	if (is_new(thread, core) || (flags & ENQ_WAKEUP && (__s64)(vtime - *now) < 0))
		vtime = *now;
	scx_bpf_dsq_insert_vtime(task, core, of->slice_ns, vtime, flags);
}

// How long an owner may run on, as `Account::extra_us` has it.
static __always_inline __u64 extra_ns(struct task_struct *task, const struct thread *thread, const struct guard_settings *of)
{
	__u64 owed_ns = thread->owed_ns;

	if (thread->in_turn)
		owed_ns += task->se.sum_exec_runtime - thread->turn_ns;
	return owed_ns < of->owed_ns_most ? of->owed_ns_most - owed_ns : 0;
}

// What a thread pays of its earlier turns: what it runs stands for twice as much, until all is paid.
static __always_inline __u64 pays_ns(const struct thread *thread, __u64 ran_ns)
{
	__u64 owed_ns = thread->owed_ns - thread->free_ns;

	return owed_ns < ran_ns ? owed_ns : ran_ns;
}

// Whether a thread that runs is still before all who wait here; then a new slice of it begins.
static __always_inline int is_first(struct task_struct *task, const struct thread *thread, __s32 core)
{
	__u64 ran_ns = task->se.sum_exec_runtime - thread->ran_ns - thread->free_ns;
	__u64 vtime = task->scx.dsq_vtime + (ran_ns + pays_ns(thread, ran_ns)) * WEIGHT_USUAL / weight_of(task);
	struct task_struct *next = scx_bpf_dsq_peek(core);
	__u64 *now = bpf_map_lookup_elem(&nows, &core);

	if (next && (__s64)(next->scx.dsq_vtime - vtime) <= 0)
		return 0;
	if (now && (__s64)(vtime - *now) > 0)
		*now = vtime;
	return 1;
}

// A slice has ended, or nobody runs on this core.
SEC("struct_ops/dispatch")
void BPF_PROG(dispatch, __s32 core, struct task_struct *prev)
{
	struct guard_counts *count = counted();
	struct guard_settings *of = set();
	struct thread *thread;
	__u64 may_ns;

	if (prev && prev->scx.flags & TASK_QUEUED && of && count) {
		thread = bpf_task_storage_get(&threads, prev, 0, 0);
		if (thread && owns(thread)) {
			may_ns = extra_ns(prev, thread, of);
			if (!thread->in_turn)
				__sync_fetch_and_add(&count->lost, 1);
			if (may_ns) {
				if (!thread->in_turn) {
					thread->in_turn = 1;
					thread->turn_ns = prev->se.sum_exec_runtime;
					__sync_fetch_and_add(&count->turns, 1);
				}
				scx_bpf_task_set_slice(prev, may_ns);
				return;
			}
			__sync_fetch_and_add(&count->owed_too_much, 1);
		}
		if (thread && thread->in_turn)
			end_turn(prev, thread);
		if (thread && is_first(prev, thread, core)) {
			scx_bpf_task_set_slice(prev, of->slice_ns);
			return;
		}
	}
	scx_bpf_dsq_move_to_local(core);
}

SEC("struct_ops/running")
void BPF_PROG(running, struct task_struct *task)
{
	struct thread *thread = bpf_task_storage_get(&threads, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	__s32 core = scx_bpf_task_cpu(task);
	__u64 *now = bpf_map_lookup_elem(&nows, &core);

	if (!thread || !now)
		return;
	// It may have come without a queue, to a core that was idle.
	if (is_new(thread, core))
		scx_bpf_task_set_dsq_vtime(task, *now);
	else if ((__s64)(task->scx.dsq_vtime - *now) > 0)
		*now = task->scx.dsq_vtime;
	thread->ran_ns = task->se.sum_exec_runtime;
	thread->free_ns = 0;
	thread->core_after = core + 1;
}

SEC("struct_ops/stopping")
void BPF_PROG(stopping, struct task_struct *task, _Bool is_runnable)
{
	struct thread *thread = bpf_task_storage_get(&threads, task, 0, 0);
	__u64 ran_ns, paid_ns;

	if (!thread)
		return;
	if (thread->in_turn)
		end_turn(task, thread);
	ran_ns = task->se.sum_exec_runtime - thread->ran_ns - thread->free_ns;
	paid_ns = pays_ns(thread, ran_ns);
	thread->owed_ns -= paid_ns;
	scx_bpf_task_set_dsq_vtime(task, task->scx.dsq_vtime + (ran_ns + paid_ns) * WEIGHT_USUAL / weight_of(task));
}

SEC("struct_ops/enable")
void BPF_PROG(enable, struct task_struct *task)
{
	__s32 core = scx_bpf_task_cpu(task);
	__u64 *now = bpf_map_lookup_elem(&nows, &core);

	if (now)
		scx_bpf_task_set_dsq_vtime(task, *now);
}

SEC("struct_ops.s/init")
__s32 BPF_PROG(init)
{
	struct guard_settings *of = set();
	__s32 error = 0;

	for (__u32 core = 0; of && core < CORES_MAX && core < of->cores && !error; core++)
		error = scx_bpf_create_dsq(core, -1);
	return error;
}

SEC("struct_ops/exit")
void BPF_PROG(ends, struct scx_exit_info *info)
{
	struct guard_counts *count = counted();

	if (count)
		count->ended = info->kind;
}

SEC("tp_btf/tcp_rcv_space_adjust")
int BPF_PROG(receives, struct sock *sk)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct guard_settings *of = set();
	struct thread *thread;

	if (!of || !sk->sk_lock.owned || task->policy != SCHED_NORMAL || !is_meant(sk, &of->meant))
		return 0;
	thread = bpf_task_storage_get(&threads, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!thread)
		return 0;
	thread->sk = sk;
	thread->cookie = bpf_get_socket_cookie(sk);
	return 0;
}

// The call has ended, and with it the turn.
SEC("tp_btf/sock_recv_length")
int BPF_PROG(received, struct sock *sk)
{
	struct thread *thread = bpf_task_storage_get(&threads, bpf_get_current_task_btf(), 0, 0);
	struct guard_counts *count = counted();

	if (!thread || !thread->in_turn)
		return 0;
	if (count)
		__sync_fetch_and_add(&count->yielded, 1);
	scx_bpf_kick_cpu(bpf_get_smp_processor_id(), KICK_PREEMPT);
	return 0;
}

SEC(".struct_ops.link")
struct sched_ext_ops guard = {
	.select_cpu = (void *)select_core,
	.enqueue = (void *)enqueue,
	.dispatch = (void *)dispatch,
	.running = (void *)running,
	.stopping = (void *)stopping,
	.enable = (void *)enable,
	.init = (void *)init,
	.exit = (void *)ends,
	// Else the kernel gives those a slice of 20 ms: threads that are preempted within a program such as watch's.
	.flags = OPS_ENQ_MIGRATION_DISABLED,
	.name = "ackpace_guard",
};
