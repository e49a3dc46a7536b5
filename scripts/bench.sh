#!/bin/sh
# `make bench`: builds the server and the lab, and hands over to the lab, which installs its peers itself.
set -eu
cd "$(dirname "$0")/.."
. scripts/lib.sh

ensure_rust "make bench"
cargo build --quiet --release --locked --package ackpace --package ackpace-lab
# shellcheck disable=SC2086 # ARGS is a line of options as it would be typed
exec "$(target_dir)/release/ackpace-lab" bench ${ARGS:-}
