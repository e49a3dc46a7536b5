#!/bin/sh
# `make check`: the quick loop while writing. It needs rustc, rustfmt and clippy, no network, and runs no end-to-end tests.
set -eu
cd "$(dirname "$0")/.."
. scripts/lib.sh

ensure_rust "make check"
ensure_tools "make check"
LOGS=$(target_dir)/test-logs
mkdir -p "$LOGS"
step format cargo fmt --all --check
step lints cargo clippy --quiet --workspace --all-targets -- -D warnings
step tidy cargo xtask tidy
temp_on_disk
step unit-tests cargo test --quiet --workspace --lib --bins
# The simulator's tables that answer soonest, without their largest tests. `make test` runs the rest: send_memory, reading,
# cold_clients, hostile, soak, and the receiver's in `receive/`.
step tables cargo test --quiet -p ackpace-sim --test sending --test balance --test response_cache --test delivery -- \
    --skip as_many_reads_are_given_to_a_device_as_pay --skip nine_thousand_slow_clients
