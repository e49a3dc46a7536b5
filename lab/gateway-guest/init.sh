#!/bin/busybox sh
# The first process of the guest: a target, the gateway, its broker, the server and the kernel's NFS client, all on one machine. Writers
# check what they have written, memory runs short, and processes are killed.
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox --install -s /bin
export PATH=/sbin:/bin HOME=/tmp
mount -t tmpfs tmp /tmp
mount -t tmpfs run /run
mkdir -p /dev/shm /etc /unit /nfs /hog /var/run
mount -t tmpfs shm /dev/shm
printf 'root:x:0:0::/:/bin/sh\n' >/etc/passwd
# In the order in which they need each other.
for module in /modules/*.ko; do insmod "$module" 2>/dev/null || echo "GUEST no $module"; done
word() { sed -n "s/.*\b$1=\([^ ]*\).*/\1/p" /proc/cmdline; }
up() { cut -d. -f1 /proc/uptime; }
# check NAME COMMAND..: says whether it succeeds.
check() {
    name=$1
    shift
    if "$@" >/tmp/check.log 2>&1; then echo "ok $name"; else echo "FAILED $name" | tee /tmp/failed && tail -n 5 /tmp/check.log; fi
}
# must NAME COMMAND..: without it there is nothing to do.
must() {
    check "$@"
    ! [ -s /tmp/failed ] || { tail -n 5 /tmp/*.log && poweroff -f; }
}
# until_there SECONDS COMMAND..
until_there() {
    left=$1
    shift
    while ! "$@"; do
        left=$((left - 1))
        [ "$left" -gt 0 ] || return 1
        sleep 1
    done
}
ip link set lo up
echo
echo "GUEST Linux $(uname -r), $(nproc) cores, $(awk '/MemTotal/ { print int($2 / 1024) }' /proc/meminfo) MB, up $(up) s"

tgtd -f -C 7 --iscsi portal=127.0.0.1:3260 >/tmp/tgtd.log 2>&1 &
target=iqn.2026-01.org.example:guest
url=iscsi://127.0.0.1:3260/$target/1
until_there 30 tgtadm -C 7 --lld iscsi --op new --mode target --tid 1 -T $target 2>/dev/null
must target tgtadm -C 7 --lld iscsi --op new --mode logicalunit --tid 1 --lun 1 -b /dev/vda
tgtadm -C 7 --lld iscsi --op bind --mode target --tid 1 -I ALL

ackpace-host gateway --iscsi $url --mount /unit --format --socket /run/gateway.sock --runtime /run/gateway >/tmp/gateway.log 2>&1 &
must gateway until_there 60 grep -q ready /tmp/gateway.log
gateway=$(ps | awk '/[h]ost gateway --iscsi/ { print $1 }')
# The server and the broker have a cgroup that is too small, as with MemoryMax=; it fills with dirty pages of the mount.
mount -t cgroup2 none /sys/fs/cgroup
echo +memory >/sys/fs/cgroup/cgroup.subtree_control
mkdir /sys/fs/cgroup/server
echo "$(word limit)M" >/sys/fs/cgroup/server/memory.max
limited() { (echo 0 >/sys/fs/cgroup/server/cgroup.procs && exec "$@"); }
# again PROGRAM..: as systemd does: whoever kills it gets a new one.
again() {
    while [ ! -e /tmp/stops ]; do
        limited "$@" >>"/tmp/$1-$2.log" 2>&1
        echo "GUEST $1 $2 ended: $?"
        sleep 1
    done
}
again ackpace-host files --root /unit --for root --allow-root --socket /run/files.sock &
must broker until_there 30 grep -q ready /tmp/ackpace-host-files.log
again ackpace serve /unit --listen 127.0.0.1:8080 --nfs 127.0.0.1:2049 --nfs-export '/=127.0.0.0/8,rw,no_root_squash' \
    --nfs-broker /run/files.sock --nfs-key /tmp/key --hide off --iscsi $url --iscsi-gateway /run/gateway.sock \
    --workers 1 --memory-max 540MiB &
must server until_there 60 grep -q '^NFS at' /tmp/ackpace-serve.log
mount_nfs() {
    mount -t nfs -o vers=3,proto=tcp,nolock,hard,timeo=100,port=2049,mountport=2049,mountproto=tcp,addr=127.0.0.1,mountaddr=127.0.0.1 127.0.0.1:/ /nfs
}
must mount mount_nfs
hog_mb=$(word hog)
mount -t tmpfs -o "size=$((hog_mb + 8))m" hog /hog
dd if=/dev/zero of=/hog/hog bs=1M count="$hog_mb" 2>/dev/null
echo "GUEST memory is short, up $(up) s: $(awk '/MemFree|MemAvailable/ { printf "%s %d MB ", $1, $2 / 1024 }' /proc/meminfo)"

# writer N: files of 40 MiB of which each MiB is the same, and their sums in /tmp/sums-N.
end=$(($(up) + $(word seconds)))
writer() {
    nth=0
    mkdir -p "/nfs/$1"
    while [ "$(up)" -lt $end ]; do
        file=/nfs/$1/$((nth % 4))
        dd if=/dev/urandom of="/tmp/mib-$1" bs=64k count=16 2>/dev/null
        grep -v " $file\$" "/tmp/sums-$1" >"/tmp/rest-$1" 2>/dev/null
        rm -f "$file"
        for mib in $(seq 40); do cat "/tmp/mib-$1"; done >"$file" || echo "FAILED write of $file"
        sync "$file" || echo "FAILED fsync of $file"
        sum=$(for mib in $(seq 40); do cat "/tmp/mib-$1"; done | sha1sum)
        { cat "/tmp/rest-$1"; echo "${sum%% *}  $file"; } >"/tmp/sums-$1"
        echo 1 >/proc/sys/vm/drop_caches
        [ "$(sha1sum <"$file")" = "$sum" ] || echo "FAILED bytes of $file"
        nth=$((nth + 1))
    done
    echo "$nth" >"/tmp/written-$1"
}
for nth in 1 2 3; do writer $nth & done
# Before Linux 6.9 that ends the mount.
while [ "$(up)" -lt $end ]; do
    sleep 20
    [ "$(word kills)" = yes ] || continue
    answerer=$(ps | awk '/gateway-[a]nswer/ { print $1; exit }')
    [ -z "$answerer" ] || kill -9 "$answerer"
done
echo "GUEST memory is there again, up $(up) s"
rm -f /hog/hog
has_ended() { [ -e /tmp/written-1 ] && [ -e /tmp/written-2 ] && [ -e /tmp/written-3 ]; }
check "writers go on" until_there 120 has_ended
echo "GUEST $(awk "{ all += \$1 } END { print all }" /tmp/written-*) files of 40 MiB; $(dmesg | grep -c 'Killed process') processes killed for memory, $(grep -c 'has died' /tmp/gateway.log) of the answerer's"
umount /nfs
check "mount again" mount_nfs
cat /tmp/sums-* >/tmp/sums
check "$(wc -l </tmp/sums) files are whole" sha1sum -c /tmp/sums
check unmount umount /nfs
touch /tmp/stops
killall ackpace
sleep 3
kill $(ps | awk '/[f]iles --root/ { print $1 }') "$gateway"
is_over() { ! kill -0 "$gateway" 2>/dev/null; }
check "the gateway ends" until_there 60 is_over
check fsck e2fsck -fn /dev/vda
dmesg | grep -E 'Killed process|hung task|blocked for more|BUG|Call Trace|I/O error' | tail -n 20
tail -n 5 /tmp/*.log
echo "GUEST done, up $(up) s"
poweroff -f
