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

ROUNDS=${ROUNDS:-3}
SECONDS_EACH=${SECONDS_EACH:-10}
OUT=${OUT:-results}
LIMIT_S=${LIMIT_S:-7200}

ensure_rust "make lab RUN=receive-wait"
ensure_bpf || die "ackpace-host is of no use here without BPF"
guest_lacking=
have qemu-system-x86_64 || guest_lacking="$guest_lacking qemu-system-x86"
[ -x /bin/busybox ] && ! ldd /bin/busybox >/dev/null 2>&1 || guest_lacking="$guest_lacking busybox-static"
have cpio || guest_lacking="$guest_lacking cpio"
have xz || guest_lacking="$guest_lacking xz-utils"
have ip || guest_lacking="$guest_lacking iproute2"
# shellcheck disable=SC2086
[ -z "$guest_lacking" ] || apt_install $guest_lacking ||
    die "missing:$guest_lacking: type 'sudo apt-get install$guest_lacking', then 'make lab RUN=receive-wait' again"

TARGET=$(target_dir)
WORK=$TARGET/guest
mkdir -p "$WORK" "$OUT"

# fetch_kernel FOLDER: puts the packages of the suite's kernel for clouds there. apt has a state of its own for that, and the
# mirror that this machine is configured with; nothing is installed.
fetch_kernel() {
    suite=${SUITE:-sid}
    apt_state=$WORK/apt
    mkdir -p "$apt_state/lists/partial" "$apt_state/archives/partial" "$1"
    mirror=$(apt-get indextargets --format '$(ORIGIN) $(LABEL) $(REPO_URI)' 'Created-By: Packages' |
        awk '$1 == "Debian" && $2 == "Debian" { print $3; exit }')
    [ -n "$mirror" ] || die "apt has no mirror of Debian here: give the kernel's packages by KERNEL_DEB='a.deb b.deb'"
    echo "deb $mirror $suite main" >"$apt_state/sources.list"
    cat >"$apt_state/apt.conf" <<EOF
Dir::Etc::sourcelist "$apt_state/sources.list";
Dir::Etc::sourceparts "-";
Dir::State::lists "$apt_state/lists";
Dir::State::status "/dev/null";
Dir::Cache "$apt_state";
Acquire::Languages "none";
APT::Architectures "amd64";
APT::Sandbox::User "root";
EOF
    apt_with() { APT_CONFIG=$apt_state/apt.conf "$@"; }
    apt_with apt-get -q update >"$apt_state/log" 2>&1 ||
        { cat "$apt_state/log" >&2; die "apt can't read $suite: give the kernel's packages by KERNEL_DEB='a.deb b.deb'"; }
    image=$(apt_with apt-cache depends linux-image-cloud-amd64 | awk '/Depends: linux-image-[0-9]/ { print $2; exit }')
    [ -n "$image" ] || die "$suite has no linux-image-cloud-amd64"
    # Since 7.x an image is several packages; before, it was one.
    parts=$(apt_with apt-cache depends "$image" |
        awk -v version="${image#linux-image-}" '$1 == "Depends:" && $2 ~ /^linux-(binary|modules|base)-/ && index($2, version) { print $2 }')
    say "kernel: $image of $suite"
    # shellcheck disable=SC2086
    (cd "$1" && apt_with apt-get -q download "$image" $parts >"$apt_state/log" 2>&1) ||
        { cat "$apt_state/log" >&2; die "apt can't fetch $image"; }
}

debs=${KERNEL_DEB:-}
if [ -z "$debs" ]; then
    rm -rf "$WORK/debs"
    fetch_kernel "$WORK/debs"
    debs=$(echo "$WORK"/debs/*.deb)
fi
rm -rf "$WORK/kernel" "$WORK/root"
for deb in $debs; do dpkg-deb -x "$deb" "$WORK/kernel"; done
vmlinuz=$(find "$WORK/kernel" -type f -name 'vmlinuz*' | head -n 1)
[ -n "$vmlinuz" ] || die "no vmlinuz in $debs"

host=${ACKPACE_HOST_BIN:-$TARGET/release/ackpace-host}
guest=${ACKPACE_LAB_GUEST_BIN:-$TARGET/release/ackpace-lab-guest}
[ -n "${ACKPACE_HOST_BIN:-}" ] || cargo build --quiet --release --locked --package ackpace-host --features bpf
[ -n "${ACKPACE_LAB_GUEST_BIN:-}" ] || cargo build --quiet --release --locked --package ackpace-lab-guest

# The file system: busybox, the two binaries, iproute2's ip with their libraries, and the modules that are no part of the kernel.
root=$WORK/root
for folder in bin dev modules proc run sbin sys tmp; do mkdir -p "$root/$folder"; done
cp receive/guest/init.sh "$root/init"
cp /bin/busybox "$root/bin/busybox"
chmod 755 "$root/init"
for program in "$host" "$guest" "$(command -v ip)"; do
    cp "$program" "$root/sbin/"
    strip --strip-debug "$root/sbin/${program##*/}" 2>/dev/null || true
    for library in $(ldd "$program" | grep -oE '/[^ ]+'); do
        mkdir -p "$root/${library%/*}"
        cp -L "$library" "$root/$library"
    done
done
find "$WORK/kernel" -name 'veth.ko*' | while read -r module; do
    case $module in
    *.xz) xz -dc "$module" >"$root/modules/veth.ko" ;;
    *.zst) zstd -dqc "$module" >"$root/modules/veth.ko" ;;
    *) cp "$module" "$root/modules/veth.ko" ;;
    esac
done
(cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) >"$WORK/root.gz"

# A device alone is not enough: some clouds have one whose processor can't run a stock kernel.
if [ -z "${ACCEL:-}" ]; then
    ACCEL=tcg
    [ ! -w /dev/kvm ] || ! grep -qE '^flags.* (vmx|svm)( |$)' /proc/cpuinfo || ACCEL=kvm
fi
case $ACCEL in
kvm) accel="-accel kvm -cpu host" ;;
# The guest's time is counted by its instructions (-icount). So nothing that else happens on this machine takes a core from the
# guest, and its cores run in turns. Without erms and fsrm the kernel copies by words, not by an instruction for each byte.
tcg) accel="-accel tcg,thread=single -icount shift=${SHIFT:-1},sleep=off -cpu max,-erms,-fsrm" ;;
*) die "ACCEL=$ACCEL is neither kvm nor tcg" ;;
esac
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
