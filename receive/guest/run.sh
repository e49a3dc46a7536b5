#!/bin/sh
# `make lab RUN=receive-wait`: measures `ackpace-host receive` in a virtual machine with a newer kernel than this one's. It
# fetches Debian's kernel, packs a file system for it, boots it with QEMU, and makes tables of what it tells. Root is needed
# only where apt has to install QEMU.
#
# ROUNDS=3          how often each case is run
# SECONDS_EACH=10   for how long
# ONLY=guard/full,...  only cases that begin so; names are guard, table-7
# SUITE=sid         the suite of Debian whose kernel is taken
# KERNEL_DEB='a.deb b.deb'  packages with a kernel and its modules, in place of the suite's
# ACCEL=tcg         what runs the guest: kvm where the processor has it, else tcg (emulation)
# SHIFT=1           under tcg: an instruction takes 2^SHIFT ns of the guest's time
# LIMIT_S=7200      how long all of it may take
# APPEND=...        more words for the kernel
# OUT=results       where the log goes
# ACKPACE_HOST_BIN, ACKPACE_LAB_GUEST_BIN  binaries, in place of those that are built
set -eu
cd "$(dirname "$0")/../.."
. scripts/lib.sh
. scripts/guest.sh

ROUNDS=${ROUNDS:-3}
SECONDS_EACH=${SECONDS_EACH:-10}
OUT=${OUT:-results}
LIMIT_S=${LIMIT_S:-7200}

ensure_rust "make lab RUN=receive-wait"
ensure_bpf || die "ackpace-host is of no use here without BPF"
ensure_guest "make lab RUN=receive-wait"

TARGET=$(target_dir)
WORK=$TARGET/guest
mkdir -p "$WORK" "$OUT"

unpack_kernel "$WORK" "${SUITE:-sid}"

host=${ACKPACE_HOST_BIN:-$TARGET/release/ackpace-host}
guest=${ACKPACE_LAB_GUEST_BIN:-$TARGET/release/ackpace-lab-guest}
[ -n "${ACKPACE_HOST_BIN:-}" ] || cargo build --quiet --release --locked --package ackpace-host --features bpf
[ -n "${ACKPACE_LAB_GUEST_BIN:-}" ] || cargo build --quiet --release --locked --package ackpace-lab-guest

# The two binaries, iproute2's ip, and the module that is no part of the kernel.
root=$WORK/root
new_root "$root" receive/guest/init.sh "$host" "$guest" "$(command -v ip)"
find "$WORK/kernel" -name 'veth.ko*' | while read -r module; do
    case $module in
    *.xz) xz -dc "$module" >"$root/modules/veth.ko" ;;
    *.zst) zstd -dqc "$module" >"$root/modules/veth.ko" ;;
    *) cp "$module" "$root/modules/veth.ko" ;;
    esac
done
pack_root "$root" "$WORK/root.gz"

# The guest's time is counted by its instructions (-icount). So nothing that else happens on this machine takes a core from the
# guest, and its cores run in turns. Without erms and fsrm the kernel copies by words, not by an instruction for each byte.
set_accel "-accel tcg,thread=single -icount shift=${SHIFT:-1},sleep=off -cpu max,-erms,-fsrm"
name=receive-wait-$(date -u +%Y-%m-%dT%H%M%SZ)
console=$WORK/$name.txt
say "boots with $ACCEL; ends within $((LIMIT_S / 60)) minutes; its console: $console"
end_s=$(($(date +%s) + LIMIT_S))
machine=
trap '[ -z "$machine" ] || kill $machine 2>/dev/null' EXIT
trap 'exit 1' INT TERM HUP
: >"$console"
# An emulated kernel may panic where it patches its own code. It goes on with the case that was broken off.
for boot in 1 2 3 4 5 6 7 8; do
    from=$(grep -acE '^(CASE|FAILED) ' "$console") || true
    left_s=$((end_s - $(date +%s)))
    [ $left_s -gt 0 ] || break
    # shellcheck disable=SC2086
    timeout $left_s qemu-system-x86_64 $accel -smp 2 -m 3072 -nographic -no-reboot -net none \
        -kernel "$vmlinuz" -initrd "$WORK/root.gz" \
        -append "console=ttyS0 quiet panic=1 mitigations=off tsc=reliable rounds=$ROUNDS seconds=$SECONDS_EACH from=$from only=${ONLY:-} ${APPEND:-}" \
        </dev/null >"$console.$boot" 2>&1 &
    machine=$!
    wait $machine || true
    machine=
    tr -d '\r' <"$console.$boot" >>"$console"
    rm "$console.$boot"
    ! grep -aq '^GUEST done' "$console" || break
    grep -aq '^.*GUEST Linux' "$console" || break
    warn "the guest broke down in boot $boot; $(grep -acE '^(CASE|FAILED) ' "$console") cases are done"
done
gzip -9n <"$console" >"$OUT/$name.log.gz"
grep -aq '^GUEST done' "$console" || tail -n 30 "$console" >&2
"$guest" tell "$console"
say ""
say "the log: $OUT/$name.log.gz"
grep -aq '^GUEST done' "$console"
