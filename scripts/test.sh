#!/bin/sh
# `make test`: sets up, then runs everything that CI checks. Idempotent; prints a line per step and what failed. The
# last line is `N passed, N failed, N skipped` over all test programs; the exit code is 0 only if some passed and none
# failed.
set -eu
cd "$(dirname "$0")/.."
. scripts/lib.sh

ensure_rust "make test"
ensure_tools "make test"
ensure_clients
# Split at blanks on purpose, here and below: no words, or two.
BPF=
! ensure_bpf || BPF="--features ackpace-host/bpf"
TARGET=$(target_dir)
LOGS=$TARGET/test-logs
mkdir -p "$LOGS"
ensure_moto "$TARGET"
ensure_etcd "$TARGET"
ensure_tgt "$TARGET"
deny=$(ensure_deny "$TARGET") ||
    die "cargo-deny could not be built: type 'cargo install --locked cargo-deny@$CARGO_DENY_VERSION', then 'make test' again"

step format cargo fmt --all --check
# shellcheck disable=SC2086
step lints cargo clippy --quiet --workspace $BPF --all-targets --locked -- -D warnings
# shellcheck disable=SC2086
step documents env RUSTDOCFLAGS="-D warnings" \
    cargo doc --quiet --workspace $BPF --no-deps --document-private-items --locked
# As anybody else builds them: there, a link to a private item leads nowhere.
# shellcheck disable=SC2086
step public-documents env RUSTDOCFLAGS="-D warnings" cargo doc --quiet --workspace $BPF --no-deps --locked
step licences "$deny" --locked check --hide-inclusion-graph bans licenses sources
step tidy cargo xtask tidy

# shellcheck disable=SC2086
step build cargo test --quiet --workspace $BPF --locked --no-run

temp_on_disk
start=$(date +%s)
say "tests:"
# `cargo test` has built these binaries, with the features of the whole workspace. Without the variables the end-to-end tests would
# compile them a second time.
export ACKPACE_BIN="$TARGET/debug/ackpace" ACKPACE_LAB_BIN="$TARGET/debug/ackpace-lab" ACKPACE_HOST_BIN="$TARGET/debug/ackpace-host"

# lane NAME THREADS TARGETS..: runs these test programs, one after the other, each with so many tests at a time.
# --show-output: a test that lacks a client prints `skipped: TEST: WHY`, which is counted and shown at the end.
lane() {
    lane_name=$1 lane_threads=$2
    shift 2
    {
        status=0
        # shellcheck disable=SC2086
        cargo test --workspace $BPF --locked --no-fail-fast "$@" -- --show-output --test-threads "$lane_threads" 2>&1 ||
            status=$?
        echo "$status" >"$LOGS/$lane_name.status"
    } | tee "$LOGS/$lane_name.log" | awk -f scripts/test-lines.awk
}

# End-to-end tests wait for most of their time: there are more of them at a time than cores, in two lanes, and beside them run those that
# compute. Programs of one name run together.
several= single= rest=
for program in $(test_programs tests/tests); do
    case $program in
    cluster* | nfs* | hunter) several="$several --test $program" ;;
    *) single="$single --test $program" ;;
    esac
done
for program in $(test_programs ./*/tests ./*/*/tests); do
    case "$several $single " in *" $program "*) ;; *) rest="$rest --test $program" ;; esac
done
# shellcheck disable=SC2086
lane tests-several "$(nproc)" $several &
# shellcheck disable=SC2086
lane tests-single $(($(nproc) * 2)) $single &
# shellcheck disable=SC2086
lane tests-rest "$(nproc)" --lib --bins $rest
lane tests-docs "$(nproc)" --doc
wait
status=0
: >"$LOGS/tests.log"
for name in tests-several tests-single tests-rest tests-docs; do
    cat "$LOGS/$name.log" >>"$LOGS/tests.log"
    [ "$(cat "$LOGS/$name.status")" = 0 ] || status=1
done
say "tests: $(($(date +%s) - start)) s; everything they printed: $LOGS/tests.log"
awk -v status="$status" -f scripts/test-sum.awk "$LOGS/tests.log"
