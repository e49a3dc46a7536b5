#!/bin/sh
# `make lab`: builds the lab, and the server if experiments run, then starts the lab.
# RUN is an experiment or a set of them, ROUNDS a number. ARGS is a line of options as typed in a shell, quotes and all:
# make lab RUN=paced ARGS="--contenders 'ackpace --compare send=eager,nginx'"
set -eu
cd "$(dirname "$0")/.."
. scripts/lib.sh

ensure_rust "make lab"
lab=$(target_dir)/release/ackpace-lab
if [ -z "${RUN:-}" ]; then
    cargo build --quiet --release --locked --package ackpace-lab
    "$lab" list
    say
    say "In a virtual machine, with variables of its own:"
    say "  receive-wait   how long segments wait for a receiver on a busy machine (Wu and Crawford; receive/guest/run.sh)"
    say "  nfs-guest      the kernel's NFS client: POSIX, coherence, pjdfstest, fsx, fio, dbench (lab/nfs-guest/run.sh)"
    say "  gateway-guest  all of a gateway of NFS while memory runs out and processes are killed (lab/gateway-guest/run.sh)"
    exit
fi
[ "$RUN" != receive-wait ] || exec sh receive/guest/run.sh
[ "$RUN" != nfs-guest ] || exec sh lab/nfs-guest/run.sh
[ "$RUN" != gateway-guest ] || exec sh lab/gateway-guest/run.sh
case " $RUN " in *" ncc-"* | *" nfs-"*)
    ensure_tgt "$(target_dir)"
    ensure_ganesha "$(target_dir)"
    ;;
esac
cargo build --quiet --release --locked --package ackpace --package ackpace-lab
# Its gateway mounts targets. Without BPF, which that does not need.
case " $RUN " in *" ncc-"* | *" nfs-write "*) cargo build --quiet --release --locked --package ackpace-host ;; esac
# The caller's own words, so the shell that reads them may do with them what the caller's shell would.
eval "set -- ${ARGS:-}"
# shellcheck disable=SC2086
exec "$lab" run $RUN ${ROUNDS:+--rounds "$ROUNDS"} "$@"
