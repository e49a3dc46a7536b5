#!/bin/busybox sh
# The first process of the guest: mounts an export of the host twice, as two clients would, and checks it.
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox --install -s /bin
export PATH=/sbin:/bin HOME=/tmp
mount -t tmpfs tmp /tmp
mount -t tmpfs run /run
mkdir -p /dev/shm && mount -t tmpfs shm /dev/shm
# In the order in which they need each other.
for module in /modules/*.ko; do insmod "$module" 2>/dev/null || echo "GUEST no $module"; done
word() { sed -n "s/.*\b$1=\([^ ]*\).*/\1/p" /proc/cmdline; }
ip link set lo up
for link in /sys/class/net/e*; do
    ip link set "${link##*/}" up
    ip addr add 10.0.2.15/24 dev "${link##*/}"
done
echo
echo "GUEST Linux $(uname -r), $(nproc) cores, up $(cut -d' ' -f1 /proc/uptime) s"
export=$(word export)
port=$(word port)
# As two clients: nothing of what one mount has cached is the other's. Attributes are cached for a second at most.
options=vers=3,proto=tcp,nolock,hard,timeo=600,port=$port,mountport=$port,mountproto=tcp,addr=10.0.2.2,mountaddr=10.0.2.2,nosharecache,acregmax=1,acdirmax=1
mkdir /mnt /mnt/a /mnt/b
for side in a b; do
    mount -t nfs -o "$options" "10.0.2.2:$export" /mnt/$side || echo "GUEST no mount $side"
done
for job in $(word jobs | tr , ' '); do
    echo "GUEST begins $job, up $(cut -d' ' -f1 /proc/uptime) s"
    case $job in
    posix) ackpace-lab-posix /mnt/a /mnt/b ;;
    sums) (cd /mnt/a && find . -type f -exec sha256sum {} +) ;;
    fio)
        mkdir -p /mnt/a/fio
        for kind in 0 1; do
            fio --name=verify --directory=/mnt/a/fio --rw=randwrite --bsrange=512-256k --size=24m --direct=$kind --ioengine=psync \
                --verify=crc32c --do_verify=1 --verify_fatal=1 --unlink=1 --thread --numjobs=2 --end_fsync=1 >/tmp/fio.log 2>&1 &&
                echo "ok fio direct=$kind" || { echo "FAILED fio direct=$kind"; tail -n 30 /tmp/fio.log; }
        done
        rm -rf /mnt/a/fio
        ;;
    pjdfstest)
        mkdir -p /etc /mnt/a/pjdfstest
        printf '%s:x:%s:%s::/:/bin/sh\n' root 0 0 nobody 65534 65534 tests 1001 1001 >/etc/passwd
        printf '%s:x:%s:\n' root 0 nobody 65534 tests 1001 >/etc/group
        printf '[features]\nutime_now = {}\nutimensat = {}\nrename_ctime = {}\n[settings]\nnaptime = 0.05\n' >/tmp/pjdfstest.toml
        # NFSv3's seconds have 32 bits, and a client renames what is removed while it is open.
        printf 'expected_failures = ["utimensat::y2038", "unlink::open_file_not_freed"]\n' >>/tmp/pjdfstest.toml
        printf '[dummy_auth]\nentries = [["nobody", "nobody"], ["tests", "tests"]]\n' >>/tmp/pjdfstest.toml
        chmod 777 /mnt/a/pjdfstest
        pjdfstest -c /tmp/pjdfstest.toml -p /mnt/a/pjdfstest >/tmp/pjdfstest.log 2>&1 && echo "ok pjdfstest: $(grep '^Summary' /tmp/pjdfstest.log)" ||
            { echo "FAILED pjdfstest"; grep -v ' ok$' /tmp/pjdfstest.log | tail -n 100; }
        rm -rf /mnt/a/pjdfstest
        ;;
    cthon)
        cd /cthon/basic
        NFSTESTDIR=/mnt/a/cthon sh ./runtests -f >/tmp/cthon.log 2>&1 && echo "ok cthon basic" || { echo "FAILED cthon basic"; tail -n 20 /tmp/cthon.log; }
        rm -rf /mnt/a/cthon && mkdir /mnt/a/cthon && cp -r /cthon/special/. /mnt/a/cthon && cd /mnt/a/cthon
        sh ./runtests >/tmp/cthon.log 2>&1 && echo "ok cthon special" || { echo "FAILED cthon special"; tail -n 20 /tmp/cthon.log; }
        cd / && rm -rf /mnt/a/cthon
        ;;
    fsx)
        # Of a file of 1 MiB: reads, writes, mappings, truncations, and the client's caches dropped between them.
        { printf 'flen = 1048576\nnomsyncafterwrite = false\n[opsize]\nmax = 131072\n[weights]\n'
          printf '%s = 2\n' close_open invalidate truncate fsync fdatasync copy_file_range sendfile
          printf '%s = 10\n' read write mapread mapwrite; } >/tmp/fsx.toml
        mkdir -p /mnt/a/fsx
        for seed in 1 2 3 4; do
            fsx -q -f /tmp/fsx.toml -S $seed -N 2000 -P /tmp /mnt/a/fsx/$seed >/tmp/fsx.log 2>&1 &&
                echo "ok fsx seed=$seed" || { echo "FAILED fsx seed=$seed"; tail -n 20 /tmp/fsx.log; }
        done
        rm -rf /mnt/a/fsx
        ;;
    dbench)
        mkdir -p /mnt/a/dbench
        # A client renames what is removed while it is still being read, and refuses to remove that name (.nfs...).
        dbench -c /client.txt -D /mnt/a/dbench -t 30 4 >/tmp/dbench.log 2>&1 && grep -q '^Throughput' /tmp/dbench.log &&
            ! grep -v '/\.nfs[^/]* failed' /tmp/dbench.log | grep -qE '^\[[0-9]+\].*(failed|ERROR)' &&
            echo "ok dbench: $(grep '^Throughput' /tmp/dbench.log)" ||
            { echo "FAILED dbench"; grep -E 'failed|ERROR' /tmp/dbench.log | head; tail -n 20 /tmp/dbench.log; }
        rm -rf /mnt/a/dbench
        ;;
    *) echo "GUEST knows no job $job" ;;
    esac
done
cd /
umount /mnt/a /mnt/b || echo "GUEST can't unmount"
dmesg | grep -iE 'nfs|rpc|BUG|WARN|Call Trace' | tail -n 20
echo "GUEST done, up $(cut -d' ' -f1 /proc/uptime) s"
poweroff -f
