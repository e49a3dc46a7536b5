# For scripts that boot a virtual machine: Debian's kernel, and the first file system of the guest. Sourced after lib.sh.

# ensure_guest WHAT: provides QEMU and what packs a file system.
ensure_guest() {
    guest_lacking=
    have qemu-system-x86_64 || guest_lacking="$guest_lacking qemu-system-x86"
    [ -x /bin/busybox ] && ! ldd /bin/busybox >/dev/null 2>&1 || guest_lacking="$guest_lacking busybox-static"
    have cpio || guest_lacking="$guest_lacking cpio"
    have xz || guest_lacking="$guest_lacking xz-utils"
    have ip || guest_lacking="$guest_lacking iproute2"
    have depmod || guest_lacking="$guest_lacking kmod"
    # shellcheck disable=SC2086
    [ -z "$guest_lacking" ] || apt_install $guest_lacking ||
        die "missing:$guest_lacking: type 'sudo apt-get install$guest_lacking', then '$1' again"
}

# fetch_kernel WORK SUITE FOLDER: puts the packages of the suite's kernel for clouds into the folder. apt has a state of its own
# for that, and the mirror that this machine is configured with; nothing is installed.
fetch_kernel() {
    apt_state=$1/apt
    mkdir -p "$apt_state/lists/partial" "$apt_state/archives/partial" "$3"
    mirror=$(apt-get indextargets --format '$(ORIGIN) $(LABEL) $(REPO_URI)' 'Created-By: Packages' |
        awk '$1 == "Debian" && $2 == "Debian" { print $3; exit }')
    [ -n "$mirror" ] || die "apt has no mirror of Debian here: give the kernel's packages by KERNEL_DEB='a.deb b.deb'"
    echo "deb $mirror $2 main" >"$apt_state/sources.list"
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
        { cat "$apt_state/log" >&2; die "apt can't read $2: give the kernel's packages by KERNEL_DEB='a.deb b.deb'"; }
    image=$(apt_with apt-cache depends linux-image-cloud-amd64 | awk '/Depends: linux-image-[0-9]/ { print $2; exit }')
    [ -n "$image" ] || die "$2 has no linux-image-cloud-amd64"
    # Since 7.x an image is several packages; before, it was one.
    parts=$(apt_with apt-cache depends "$image" |
        awk -v version="${image#linux-image-}" '$1 == "Depends:" && $2 ~ /^linux-(binary|modules|base)-/ && index($2, version) { print $2 }')
    say "kernel: $image of $2"
    # shellcheck disable=SC2086
    (cd "$3" && apt_with apt-get -q download "$image" $parts >"$apt_state/log" 2>&1) ||
        { cat "$apt_state/log" >&2; die "apt can't fetch $image"; }
}

# unpack_kernel WORK SUITE: fetches the kernel, or takes KERNEL_DEB, and unpacks it to WORK/kernel. Sets vmlinuz.
unpack_kernel() {
    debs=${KERNEL_DEB:-}
    if [ -z "$debs" ]; then
        rm -rf "$1/debs"
        fetch_kernel "$1" "$2" "$1/debs"
        debs=$(echo "$1"/debs/*.deb)
    fi
    rm -rf "$1/kernel"
    for deb in $debs; do dpkg-deb -x "$deb" "$1/kernel"; done
    vmlinuz=$(find "$1/kernel" -type f -name 'vmlinuz*' | head -n 1)
    [ -n "$vmlinuz" ] || die "no vmlinuz in $debs"
}

# new_root ROOT INIT PROGRAM..: an empty file system with busybox, its first process, and programs with their libraries.
new_root() {
    root=$1
    rm -rf "$root"
    for folder in bin dev modules proc run sbin sys tmp; do mkdir -p "$root/$folder"; done
    cp "$2" "$root/init"
    cp /bin/busybox "$root/bin/busybox"
    chmod 755 "$root/init"
    shift 2
    for program in "$@"; do
        cp "$program" "$root/sbin/"
        strip --strip-debug "$root/sbin/${program##*/}" 2>/dev/null || true
        for library in $(ldd "$program" | grep -oE '/[^ ]+'); do
            mkdir -p "$root/${library%/*}"
            cp -L "$library" "$root/$library"
        done
    done
}

# add_module KERNEL NAME ROOT: a module and those that it needs, numbered in the order in which they are inserted.
add_module() {
    modules=$(find "$1" -type d -path '*/modules/*' -name kernel | head -n 1)
    modules=${modules%/kernel}
    kernel_version=${modules##*/}
    [ -f "$modules/modules.dep" ] || depmod -b "${modules%/lib/modules/*}" "$kernel_version" 2>/dev/null ||
        depmod -b "${modules%/lib/modules/*}" -m /lib/modules "$kernel_version"
    modprobe -d "${modules%/lib/modules/*}" -S "$kernel_version" --show-depends "$2" 2>/dev/null |
        awk '$1 == "insmod" { print $2 }' | while read -r module; do
        name=${module##*/}
        name=${name%%.*}
        ! ls "$3/modules"/*-"$name.ko" >/dev/null 2>&1 || continue
        number=$(printf %03d "$(ls "$3/modules" | wc -l)")
        case $module in
        *.xz) xz -dc "$module" >"$3/modules/$number-$name.ko" ;;
        *.zst) zstd -dqc "$module" >"$3/modules/$number-$name.ko" ;;
        *) cp "$module" "$3/modules/$number-$name.ko" ;;
        esac
    done
}

# pack_root ROOT FILE: as the kernel unpacks it.
pack_root() {
    (cd "$1" && find . | cpio -o -H newc --quiet | gzip -1) >"$2"
}

# has_kvm: a device alone is not enough: some clouds have one whose processor can't run a stock kernel.
has_kvm() {
    [ -w /dev/kvm ] && grep -qE '^flags.* (vmx|svm)( |$)' /proc/cpuinfo
}

# set_accel TCG: sets accel, QEMU's words for what runs the guest: ACCEL, else kvm where there is one, else emulation, which is TCG.
set_accel() {
    if [ -z "${ACCEL:-}" ]; then
        ACCEL=tcg
        ! has_kvm || ACCEL=kvm
    fi
    case $ACCEL in
    kvm) accel="-accel kvm -cpu host" ;;
    tcg) accel=$1 ;;
    *) die "ACCEL=$ACCEL is neither kvm nor tcg" ;;
    esac
}

# boot_guest LOG LIMIT_S WORDS ARGS..: boots WORK/root.gz with the kernel of unpack_kernel; WORDS are added to its command line, ARGS to
# QEMU's. Shows what the guest checks. An emulated kernel may panic while it boots; once it has begun, it is not booted again.
boot_guest() {
    guest_log=$1 guest_limit_s=$2 guest_words=$3
    shift 3
    set_accel "-accel tcg,thread=single -cpu max,-cx16,-erms,-fsrm"
    say "boots with $ACCEL; ends within $((guest_limit_s / 60)) minutes; its console: $WORK/console.txt"
    machine=
    trap '[ -z "$machine" ] || kill $machine 2>/dev/null' EXIT
    trap 'exit 1' INT TERM HUP
    for boot in 1 2 3 4 5; do
        # shellcheck disable=SC2086
        timeout "$guest_limit_s" qemu-system-x86_64 $accel -smp 2 -nographic -no-reboot -kernel "$vmlinuz" -initrd "$WORK/root.gz" "$@" \
            -append "console=ttyS0 quiet panic=1 mitigations=off tsc=reliable $guest_words ${APPEND:-}" </dev/null >"$WORK/console.txt" 2>&1 &
        machine=$!
        wait $machine || true
        machine=
        tr -d '\r' <"$WORK/console.txt" >"$guest_log"
        ! grep -aq '^GUEST Linux' "$guest_log" || break
        warn "the guest did not boot, attempt $boot"
    done
    grep -aE '^(GUEST|ok|FAILED|POSIX) ' "$guest_log" || true
    say "the log: $guest_log"
    grep -aq '^GUEST done' "$guest_log" || { tail -n 30 "$guest_log" >&2; die "the guest did not end"; }
    ! grep -aqE '^(FAILED|GUEST no) ' "$guest_log" || die "checks failed"
}
