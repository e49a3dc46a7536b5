#!/bin/sh
# `make lab RUN=gateway-guest`: all of a gateway of NFS on Debian's kernel in a virtual machine, where a hang costs nothing: target,
# gateway, broker, server and the kernel's NFS client. Memory runs out, so the OOM killer ends the server; the process that answers below
# the mount is killed, too. What was written has to be right, and the ext4 clean.
#
# SECONDS_MAX=120   how long is written
# MEMORY_MB=1300    of the guest
# HOG_MB=750        taken from it
# LIMIT_MB=240      of the cgroup of server and broker: less than they want
# KILLS=yes         the process that answers is killed each 20 s; a kernel before 6.9 ends the mount then
# SUITE=stable      the suite of Debian whose kernel is taken
# KERNEL_DEB='a.deb b.deb'  packages with a kernel and its modules, in place of the suite's
# ACCEL=tcg         what runs the guest: kvm where the processor has it, else tcg (emulation)
# OUT=results       where the log goes
set -eu
cd "$(dirname "$0")/../.."
. scripts/lib.sh
. scripts/guest.sh

OUT=${OUT:-results}
SECONDS_MAX=${SECONDS_MAX:-120}
ensure_rust "make lab RUN=gateway-guest"
ensure_guest "make lab RUN=gateway-guest"
have mke2fs || apt_install e2fsprogs || die "missing: mke2fs: type 'sudo apt-get install e2fsprogs'"
TARGET=$(target_dir)
ensure_tgt "$TARGET"
tgt=$TARGET/tools/tgt/usr/sbin
[ -x "$tgt/tgtd" ] || tgt=$(dirname "$(command -v tgtd)")
WORK=$TARGET/gateway-guest
mkdir -p "$WORK" "$OUT"
cargo build --quiet --release --locked --package ackpace --package ackpace-host

unpack_kernel "$WORK" "${SUITE:-stable}"
root=$WORK/root
new_root "$root" lab/gateway-guest/init.sh "$tgt/tgtd" "$tgt/tgtadm" "$TARGET/release/ackpace" "$TARGET/release/ackpace-host" \
    "$(command -v mke2fs)" "$(command -v e2fsck)"
ln -s mke2fs "$root/sbin/mkfs.ext4"
mkdir -p "$root/etc"
cp /etc/mke2fs.conf "$root/etc/"
for module in virtio_pci virtio_blk fuse loop ext4 crc32c_generic nfs nfsv3; do add_module "$WORK/kernel" $module "$root"; done
pack_root "$root" "$WORK/root.gz"
disk=$WORK/disk
rm -f "$disk"
truncate -s 2G "$disk"
boot_guest "$OUT/gateway-guest.log" $((SECONDS_MAX + 600)) "seconds=$SECONDS_MAX hog=${HOG_MB:-750} limit=${LIMIT_MB:-240} kills=${KILLS:-yes}" \
    -m "${MEMORY_MB:-1300}" -net none -drive "file=$disk,format=raw,if=virtio,cache=unsafe"
rm -f "$disk"
