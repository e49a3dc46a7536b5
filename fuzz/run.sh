#!/usr/bin/env bash
# Runs every fuzz target under libFuzzer, guided by coverage, on the stable compiler.
#
#   fuzz/run.sh [SECONDS] [TARGET...]     SECONDS for each target (default 600); all targets by default
#   fuzz/run.sh 20 canary                 must fail: it shows that a finding is reported
#
# As many run at once as there are processors (JOBS=1 for one at a time). What libFuzzer learns is
# kept under $ACKPACE_FUZZ_DIR (default: fuzz/ in cargo's target folder), never in the tree. A crash
# ends its target: the path of the input is printed, and the exit code is 1 once all have ended.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-600}
if ! [[ $seconds =~ ^[1-9][0-9]*$ ]]; then
    echo "fuzz/run.sh: '$seconds' is no number of seconds" >&2
    exit 2
fi
shift $(($# > 0 ? 1 : 0))

if ! command -v c++ >/dev/null; then
    echo "fuzz/run.sh: libFuzzer is built from C++; install a compiler: apt-get install g++" >&2
    exit 2
fi

target_dir=${CARGO_TARGET_DIR:-$PWD/target}
work=${ACKPACE_FUZZ_DIR:-$target_dir/fuzz}
host=$(rustc -vV | sed -n 's/^host: //p')
jobs=${JOBS:-$(nproc)}

# Coverage counters and compared values for libFuzzer. Naming the target platform keeps these flags
# away from build scripts, which have no one to report to.
export CARGO_ENCODED_RUSTFLAGS
CARGO_ENCODED_RUSTFLAGS=$(printf '%s\x1f' \
    -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares)
CARGO_ENCODED_RUSTFLAGS+="-Ccodegen-units=1"
# Own folder, overflow and debug checks on: a wrong sum is a crash here, not a strange answer.
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true \
    CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS=true
cargo build --quiet --release -p ackpace-fuzz --features libfuzzer --bin libfuzzer \
    --target "$host" --target-dir "$work/build"
built=$work/build/$host/release

# Every target has a folder in the corpus; the tests of the crate see to that.
if (($# > 0)); then targets=("$@"); else mapfile -t targets < <(cd fuzz/corpus && printf '%s\n' */ | tr -d /); fi

run_one() {
    local name=$1 corpus=$work/corpus/$1 crashes=$work/crashes/$1 log=$work/$1.log
    mkdir -p "$corpus" "$crashes"
    local seeds=(fuzz/corpus/"$name")
    [[ -d ${seeds[0]} ]] || seeds=() # the canary has none
    # The first folder is libFuzzer's to write to, the second is only read.
    if ACKPACE_FUZZ_TARGET=$name nice "$built/libfuzzer" \
        -max_total_time="$seconds" -max_len=20480 -timeout=10 -rss_limit_mb=2048 \
        -dict=fuzz/http.dict -artifact_prefix="$crashes/" -print_final_stats=1 \
        "$corpus" "${seeds[@]}" >"$log" 2>&1; then
        local runs
        runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
        echo "$name: clean, ${runs:-?} runs in $seconds s"
    else
        echo "$name: FAILED"
        grep -aE "panicked at|ERROR: libFuzzer|Test unit written to" -A1 "$log" | head -12
        echo "  the whole story: $log"
        echo "  look at it again: cargo run -p ackpace-fuzz --bin ackpace-fuzz -- $name FILE"
        return 1
    fi
}
export -f run_one
export work built seconds

echo "${#targets[@]} targets, $seconds s each, $jobs at once; findings go to $work/crashes"
# xargs answers 123 when one of them failed.
printf '%s\n' "${targets[@]}" | xargs -P "$jobs" -I {} bash -c 'run_one {}' || exit 1
