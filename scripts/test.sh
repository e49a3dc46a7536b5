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

temp_on_disk
start=$(date +%s)
say "tests:"
# --show-output: a test that lacks a client prints `skipped: TEST: WHY`, which is counted and shown at the end.
# ACKPACE_BIN and so on: `cargo test` builds these binaries before it runs a test, with the features of the whole workspace.
# Without the variables the end-to-end tests would compile them a second time.
# Most end-to-end tests wait rather than compute: there are more of them at a time than cores.
THREADS=$(($(nproc) * 2))
export ACKPACE_BIN="$TARGET/debug/ackpace" ACKPACE_LAB_BIN="$TARGET/debug/ackpace-lab" ACKPACE_HOST_BIN="$TARGET/debug/ackpace-host"
{
    status=0
    # shellcheck disable=SC2086
    cargo test --workspace $BPF --locked --no-fail-fast -- --show-output --test-threads "$THREADS" 2>&1 || status=$?
    echo "$status" >"$LOGS/tests.status"
} | tee "$LOGS/tests.log" | awk -f scripts/test-lines.awk
say "tests: $(($(date +%s) - start)) s; everything they printed: $LOGS/tests.log"
awk -v status="$(cat "$LOGS/tests.status")" -f scripts/test-sum.awk "$LOGS/tests.log"
