# Shared by the scripts of this folder: detects what this machine has, and installs what is missing. Sourced, never run.
# POSIX sh: Debian's /bin/sh is dash.

RUST_MIN=1.85 # Debian 13's own rustc; also `rust-version` in Cargo.toml

say() { printf '%s\n' "$*"; }
warn() { printf '%s\n' "$*" >&2; }
die() {
    warn "$*"
    exit 1
}
have() { command -v "$1" >/dev/null 2>&1; }

# version_at_least 1.95.0 1.85
version_at_least() {
    awk -v got="$1" -v want="$2" 'BEGIN {
        split(got, g, "."); split(want, w, ".")
        if (g[1] + 0 != w[1] + 0) exit !(g[1] + 0 > w[1] + 0)
        exit !(g[2] + 0 >= w[2] + 0)
    }'
}

# Prints the version of a rustc, or nothing: a rustup proxy without a toolchain fails.
rustc_version() {
    "$1" --version 2>/dev/null | awk '$1 == "rustc" { print $2; exit }'
}

# Puts a folder with rustc >= RUST_MIN and its cargo first in PATH. Fails if this machine has none.
find_rust() {
    for rust_dir in "$(dirname "$(command -v rustc 2>/dev/null || echo /none/rustc)")" \
        "${CARGO_HOME:-${HOME:-/none}/.cargo}/bin" /usr/local/bin /usr/bin /usr/lib/rust-*/bin; do
        [ -x "$rust_dir/rustc" ] && [ -x "$rust_dir/cargo" ] || continue
        rust_version=$(rustc_version "$rust_dir/rustc")
        [ -n "$rust_version" ] && version_at_least "$rust_version" "$RUST_MIN" || continue
        PATH=$rust_dir:$PATH
        export PATH
        return 0
    done
    return 1
}

# Prints the target directory: CARGO_TARGET_DIR, or what the user's cargo config says.
target_dir() {
    cargo metadata --format-version 1 --no-deps --offline 2>/dev/null |
        sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p'
}

# Prints a prefix that runs a command as root, or fails: already root, sudo without a password, sudo that may ask at a
# terminal.
root_prefix() {
    if [ "$(id -u)" = 0 ]; then
        echo env
    elif have sudo && sudo -n true 2>/dev/null; then
        echo sudo -n
    elif have sudo && [ -t 0 ] && [ -t 2 ]; then
        echo sudo
    else
        return 1
    fi
}

# apt_install PACKAGE..: shows apt's output only if it fails. Fetches the package lists only if they lack something.
apt_install() {
    have apt-get || return 1
    apt_root=$(root_prefix) || return 1
    apt_log=$(mktemp) || return 1
    say "installing $* (apt)"
    if apt_try "$@" >"$apt_log" 2>&1 ||
        { $apt_root apt-get update && apt_try "$@"; } >>"$apt_log" 2>&1; then
        rm -f "$apt_log"
        return 0
    fi
    tail -n 20 "$apt_log" >&2
    rm -f "$apt_log"
    return 1
}
apt_try() {
    $apt_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends \
        -o DPkg::Lock::Timeout=120 "$@"
}

# Prints the version that apt would install; nothing if it knows none.
apt_candidate() {
    apt-cache policy "$1" 2>/dev/null | awk '$1 == "Candidate:" && $2 != "(none)" { print $2 }'
}

# Prints the suffix of the packages with a new enough rustc: "" for `rustc`, "-1.85" for Ubuntu's `rustc-1.85`. Fails if
# there is none.
apt_rust_suffix() {
    apt_rust_version=$(apt_candidate rustc)
    if [ -n "$apt_rust_version" ] && version_at_least "$apt_rust_version" "$RUST_MIN"; then
        echo ""
        return 0
    fi
    for apt_rust_version in $(apt-cache pkgnames rustc-1. 2>/dev/null | sed -n 's/^rustc-\(1\.[0-9]*\)$/\1/p' | sort -t. -k2n); do
        version_at_least "$apt_rust_version" "$RUST_MIN" || continue
        echo "-$apt_rust_version"
        return 0
    done
    return 1
}

# ensure_rust COMMAND: provides rustc, cargo and a linker, or exits with one sentence that says what to type before
# COMMAND.
ensure_rust() {
    find_rust || install_rust "$1"
    have cc || apt_install gcc libc6-dev ||
        die "ackpace needs a C compiler to link with: type 'sudo apt-get install gcc libc6-dev', then '$1' again"
}

install_rust() {
    rust_cure="install it from https://rustup.rs"
    if have apt-get; then
        if [ -z "$(apt_candidate rustc)" ]; then
            # A new machine has no package lists yet.
            rust_cure="type 'sudo apt-get update && sudo apt-get install rustc cargo'"
            ! rust_root=$(root_prefix) || $rust_root apt-get update -q >/dev/null 2>&1 || true
        fi
        if rust_suffix=$(apt_rust_suffix); then
            apt_install "rustc$rust_suffix" "cargo$rust_suffix" gcc libc6-dev ca-certificates && find_rust && return 0
            rust_cure="type 'sudo apt-get install rustc$rust_suffix cargo$rust_suffix'"
        elif [ -n "$(apt_candidate rustc)" ]; then
            rust_cure="install it from https://rustup.rs, since apt has only $(apt_candidate rustc)"
        fi
    fi
    die "ackpace needs rustc $RUST_MIN or newer: $rust_cure, then '$1' again"
}

# ensure_tools COMMAND: provides the rustfmt and clippy that belong to the rustc in use.
ensure_tools() {
    cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1 && return 0
    tools_dir=$(dirname "$(command -v rustc)")
    if [ -x "$tools_dir/rustup" ]; then
        "$tools_dir/rustup" --quiet component add rustfmt clippy ||
            die "rustfmt or clippy is missing: type 'rustup component add rustfmt clippy', then '$1' again"
        return 0
    fi
    case $tools_dir in
    /usr/lib/rust-*)
        tools_version=${tools_dir#/usr/lib/rust-}
        tools_version=${tools_version%/bin}
        tools="rustfmt-$tools_version rust-$tools_version-clippy"
        ;;
    *) tools="rustfmt rust-clippy" ;;
    esac
    # shellcheck disable=SC2086
    apt_install $tools || die "rustfmt or clippy is missing: type 'sudo apt-get install $tools', then '$1' again"
}

# ensure_clients: provides the programs that the end-to-end tests drive. Not fatal: a test that lacks one says so and is
# skipped.
ensure_clients() {
    clients_lacking=
    clients="curl:curl wget:wget aria2c:aria2 rclone:rclone apt-ftparchive:apt-utils python3:python3 nfs-cat:libnfs-utils"
    # Only root can create devices that fail.
    [ "$(id -u)" != 0 ] || clients="$clients losetup:mount mkfs.ext4:e2fsprogs ip:iproute2"
    for client in $clients; do
        have "${client%%:*}" || clients_lacking="$clients_lacking ${client#*:}"
    done
    # An independent parser of metrics: a module of python3.
    python3 -c 'import prometheus_client' 2>/dev/null || clients_lacking="$clients_lacking python3-prometheus-client"
    [ -n "$clients_lacking" ] || return 0
    # shellcheck disable=SC2086
    apt_install $clients_lacking ||
        warn "missing:$clients_lacking; the tests that need them are skipped (cure: sudo apt-get install$clients_lacking)"
}

# An object store for the tests of gateways.
MOTO_VERSION=5.2.5

# ensure_moto TARGET: provides moto's server in TARGET/tools/moto. Not fatal: the tests that need it are skipped.
ensure_moto() {
    moto_dir=$1/tools/moto
    [ "$(cat "$moto_dir/version" 2>/dev/null)" != "$MOTO_VERSION" ] || return 0
    moto_log=$(mktemp) || return 0
    say "installing moto $MOTO_VERSION (pip)"
    rm -rf "$moto_dir"
    python3 -c 'import ensurepip' 2>/dev/null || apt_install python3-venv || true
    if python3 -m venv "$moto_dir" >"$moto_log" 2>&1 &&
        "$moto_dir/bin/pip" install --quiet "moto[server]==$MOTO_VERSION" >>"$moto_log" 2>&1; then
        echo "$MOTO_VERSION" >"$moto_dir/version"
    else
        tail -n 3 "$moto_log" >&2
        warn "missing: moto; the tests of buckets are skipped (cure: python3-venv and a network)"
        rm -rf "$moto_dir"
    fi
    rm -f "$moto_log"
}

# ensure_unpacked DIR PROGRAM PACKAGES TESTS: provides a program of packages that would start a service if they were installed: they
# are only unpacked. Not fatal: the tests that need it are skipped.
ensure_unpacked() {
    if have "$2" || [ -x "$1/usr/bin/$2" ] || [ -x "$1/usr/sbin/$2" ]; then return 0; fi
    unpack_log=$(mktemp) || return 0
    say "fetching $3 (apt)"
    rm -rf "$1" && mkdir -p "$1"
    # shellcheck disable=SC2086
    if ! (cd "$1" && apt-get download -q $3 && for deb in *.deb; do dpkg-deb -x "$deb" . || exit; done) >"$unpack_log" 2>&1; then
        tail -n 3 "$unpack_log" >&2
        warn "missing: $2; $4 are skipped (cure: sudo apt-get install $3)"
        rm -rf "$1"
    fi
    rm -f "$unpack_log"
}

# ensure_etcd TARGET: provides etcd in TARGET/tools/etcd.
ensure_etcd() {
    ensure_unpacked "$1/tools/etcd" etcd etcd-server "the tests of clusters that it lists"
}

# ensure_tgt TARGET: provides tgtd, the target of iSCSI, in TARGET/tools/tgt, and the libraries that it links.
ensure_tgt() {
    have tgtd || apt_install libibverbs1 librdmacm1 libaio1 || apt_install libibverbs1 librdmacm1 libaio1t64 || return 0
    ensure_unpacked "$1/tools/tgt" tgtd tgt "the tests of iSCSI"
}

# ensure_ganesha TARGET: provides NFS-Ganesha in TARGET/tools/ganesha, and the libraries that it links. Installed, it would start
# itself and a portmapper.
ensure_ganesha() {
    ! have ganesha.nfsd || return 0
    ganesha_libraries=$(apt-cache depends nfs-ganesha 2>/dev/null | sed -n 's/^ *Depends: \(lib.*\)/\1/p')
    # shellcheck disable=SC2086
    [ -x "$1/tools/ganesha/usr/bin/ganesha.nfsd" ] || apt_install $ganesha_libraries || return 0
    ensure_unpacked "$1/tools/ganesha" ganesha.nfsd "nfs-ganesha nfs-ganesha-vfs" "the experiments beside it"
}

# ensure_bpf: provides what ackpace-host's programs for the kernel are built with. Fails where that can't be had: the tests
# that need it are skipped then.
ensure_bpf() {
    bpf_lacking=
    have clang || have clang-14 || bpf_lacking="$bpf_lacking clang"
    have pkg-config || bpf_lacking="$bpf_lacking pkg-config"
    have make || bpf_lacking="$bpf_lacking make"
    [ -f /usr/include/bpf/bpf_helpers.h ] || bpf_lacking="$bpf_lacking libbpf-dev"
    [ -f /usr/include/libelf.h ] || bpf_lacking="$bpf_lacking libelf-dev"
    [ -f /usr/include/zlib.h ] || bpf_lacking="$bpf_lacking zlib1g-dev"
    [ -n "$bpf_lacking" ] || return 0
    # shellcheck disable=SC2086
    apt_install $bpf_lacking && return 0
    warn "missing:$bpf_lacking; ackpace-host is built without BPF, and its tests are skipped (cure: sudo apt-get install$bpf_lacking)"
    return 1
}

# The newest cargo-deny that builds with rustc 1.85.
CARGO_DENY_VERSION=0.18.3

# ensure_deny TARGET: prints the cargo-deny to use; where none is installed it is built once (about two minutes on two
# cores).
ensure_deny() {
    if have cargo-deny; then
        command -v cargo-deny
        return 0
    fi
    deny_root=$1/tools/cargo-deny-$CARGO_DENY_VERSION
    if [ ! -x "$deny_root/bin/cargo-deny" ]; then
        say "building cargo-deny $CARGO_DENY_VERSION, once (two minutes)" >&2
        # A debug build: it runs on one lock file, and an optimised build takes five times as long.
        CARGO_PROFILE_DEV_DEBUG=0 CARGO_TARGET_DIR="$1/tools/build" \
            cargo install --quiet --locked --debug --root "$deny_root" --version "$CARGO_DENY_VERSION" cargo-deny >&2 ||
            return 1
        rm -rf "$1/tools/build"
    fi
    echo "$deny_root/bin/cargo-deny"
}

# step NAME COMMAND..: runs the command; if it fails, shows its output and exits.
step() {
    step_name=$1
    shift
    step_log=$LOGS/$step_name.log
    step_start=$(date +%s)
    if "$@" >"$step_log" 2>&1; then
        say "$step_name: ok ($(($(date +%s) - step_start)) s)"
    else
        cat "$step_log" >&2
        die "$step_name: failed: '$*'"
    fi
}

# test_programs DIR..: prints the names of the test programs in these folders, on one line.
test_programs() {
    for test_dir in "$@"; do
        for test_file in "$test_dir"/*.rs "$test_dir"/*/main.rs; do
            [ -f "$test_file" ] || continue
            case $test_file in */main.rs) test_file=${test_file%/main.rs} ;; esac
            test_file=${test_file##*/}
            printf '%s ' "${test_file%.rs}"
        done
    done
}

# Tests depend on how files are read from a disk. Where /tmp is in memory, as in Debian since version 13, they use
# /var/tmp.
temp_on_disk() {
    [ -z "${TMPDIR:-}" ] || return 0
    if [ "$(stat -f -c %T /tmp)" = tmpfs ] && [ -d /var/tmp ]; then
        TMPDIR=/var/tmp
        export TMPDIR
        say "tests: their files go to /var/tmp, since /tmp is memory"
    fi
}
