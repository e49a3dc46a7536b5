#!/bin/busybox sh
# The first process of the guest: mounts what it needs, makes two network namespaces, measures, and switches off.
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox --install -s /bin
# iproute2's ip stands in /sbin; busybox takes its own for a bare name.
export PATH=/sbin:/bin HOME=/tmp
ip=/sbin/ip
mount -t tmpfs tmp /tmp
mount -t tmpfs run /run
mount -t debugfs debug /sys/kernel/debug
mount -t tracefs trace /sys/kernel/tracing
mount -t bpf bpf /sys/fs/bpf
for module in /modules/*.ko; do insmod "$module" || echo "GUEST no $module"; done
word() { sed -n "s/.*\b$1=\([^ ]*\).*/\1/p" /proc/cmdline; }

# Nothing but the socket's lock shall keep a packet waiting, and no queue but a socket's shall drop one.
sysctl -q -w net.core.netdev_max_backlog=1000000 net.core.rmem_max=100000000 kernel.sched_autogroup_enabled=0
network() {
    $ip link set lo up &&
        $ip netns add rxs && $ip netns add rxr &&
        $ip link add rxs netns rxs type veth peer name rxr netns rxr &&
        $ip -n rxs addr add 10.77.0.1/24 dev rxs && $ip -n rxr addr add 10.77.0.2/24 dev rxr || return 1
    for end in rxs rxr; do
        # The first core does what a network card and its interrupts would.
        $ip -n $end link set $end up && $ip -n $end link set lo up &&
            $ip netns exec $end sh -c "echo 1 > /sys/class/net/$end/queues/rx-0/rps_cpus" || return 1
    done
}
network || { echo "GUEST has no network namespaces"; poweroff -f; }
# An emulated core may run into code that is being patched, and panic. Two instances that record nothing keep these tracepoints
# in use, so that the kernel needs no patch when programs are attached to them.
for instance in one two; do
    mkdir /sys/kernel/tracing/instances/$instance && cd /sys/kernel/tracing/instances/$instance || continue
    echo 0 >tracing_on
    for event in sched/sched_switch net/netif_receive_skb tcp/tcp_probe tcp/tcp_rcv_space_adjust tcp/tcp_cong_state_set \
        sock/inet_sock_set_state sock/sock_recv_length; do
        echo 1 >events/$event/enable
    done
done
cd /
echo
echo "GUEST Linux $(uname -r), $(nproc) cores, preempt $(cat /sys/kernel/debug/sched/preempt), base slice $(cat /sys/kernel/debug/sched/base_slice_ns) ns, clock $(cat /sys/devices/system/clocksource/clocksource0/current_clocksource), up $(cut -d' ' -f1 /proc/uptime) s"
ackpace-host doctor | grep LOST
ackpace-lab-guest run --rounds "$(word rounds)" --seconds "$(word seconds)" --from "$(word from)" --only "$(word only)"
echo "GUEST done, up $(cut -d' ' -f1 /proc/uptime) s"
poweroff -f
