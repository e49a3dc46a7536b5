#!/bin/sh
# `make lab RUN=nfs-guest`: the kernel's NFS client of a virtual machine against a server on this one. It fetches Debian's kernel,
# packs a file system for it, boots it with QEMU, and shows what it tells. The guest mounts the export twice, as two clients.
#
# JOBS=posix,pjdfstest,fsx,fio,dbench  what the guest does (lab/nfs-guest/init.sh); `sums` reads all files and prints their SHA-256
# CTHON=DIR         the folder of cthon04, for the job `cthon`: its basic and special tests, which are built there
# NFS_PORT=2049     a server on 127.0.0.1; it has to run already, with an export for 127.0.0.0/8,rw,no_root_squash (docs/nfs.md)
# EXPORT=/          what it exports
# SUITE=stable      the suite of Debian whose kernel is taken
# KERNEL_DEB='a.deb b.deb'  packages with a kernel and its modules, in place of the suite's
# ACCEL=tcg         what runs the guest: kvm where the processor has it, else tcg (emulation)
# LIMIT_S=3600      how long all of it may take
# OUT=results       where the log goes
set -eu
cd "$(dirname "$0")/../.."
. scripts/lib.sh
. scripts/guest.sh

[ -n "${NFS_PORT:-}" ] || die "start a server with an export for 127.0.0.0/8,rw,no_root_squash (docs/nfs.md), and name its port on 127.0.0.1 by NFS_PORT"
JOBS=${JOBS:-posix,pjdfstest,fsx,fio,dbench${CTHON:+,cthon}}
OUT=${OUT:-results}
LIMIT_S=${LIMIT_S:-3600}

ensure_rust "make lab RUN=nfs-guest"
ensure_guest "make lab RUN=nfs-guest"
TARGET=$(target_dir)
WORK=$TARGET/nfs-guest
mkdir -p "$WORK" "$OUT"
programs=${ACKPACE_LAB_POSIX_BIN:-$TARGET/release/ackpace-lab-posix}
[ -n "${ACKPACE_LAB_POSIX_BIN:-}" ] || cargo build --quiet --release --locked --package ackpace-lab-posix
for program in fio dbench; do
    case ,$JOBS, in *,$program,*) ;; *) continue ;; esac
    have $program || apt_install $program || die "missing: $program: type 'sudo apt-get install $program', or leave it out of JOBS"
    programs="$programs $(command -v $program)"
done

for crate in fsx@0.3.2 pjdfstest@0.2.2; do
    program=$TARGET/tools/guest/bin/${crate%@*}
    case ,$JOBS, in *,${crate%@*},*) ;; *) continue ;; esac
    if [ ! -x "$program" ]; then
        say "building $crate, once (two minutes)"
        cargo install --quiet --locked --root "$TARGET/tools/guest" "$crate" || die "$crate could not be built: leave it out of JOBS"
    fi
    programs="$programs $program"
done

unpack_kernel "$WORK" "${SUITE:-stable}"
root=$WORK/root
# shellcheck disable=SC2086
new_root "$root" lab/nfs-guest/init.sh $programs
case ,$JOBS, in *,dbench,*) cp /usr/share/dbench/client.txt "$root/client.txt" ;; esac
if [ -n "${CTHON:-}" ]; then
    cp -r "$CTHON" "$root/cthon"
    flags="-DLINUX -DHAVE_SOCKLEN_T -DGLIBC=22 -DMMAP -DSTDARG -std=gnu89 -w -static"
    for part in basic special; do
        make -s -C "$root/cthon/$part" CFLAGS="$flags" LIBS= >"$WORK/cthon.log" 2>&1 ||
            { tail -n 5 "$WORK/cthon.log" >&2; die "$CTHON/$part could not be built"; }
    done
fi
for module in virtio_pci virtio_net nfs nfsv3; do add_module "$WORK/kernel" $module "$root"; done
pack_root "$root" "$WORK/root.gz"

boot_guest "$OUT/nfs-guest.log" "$LIMIT_S" "port=$NFS_PORT export=${EXPORT:-/} jobs=$JOBS" \
    -m 1536 -netdev user,id=net,restrict=off -device virtio-net-pci,netdev=net
