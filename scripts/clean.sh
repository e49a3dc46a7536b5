#!/bin/sh
# `make clean`: removes what was built and generated. Results of benchmarks stay.
set -eu
cd "$(dirname "$0")/.."
. scripts/lib.sh

! find_rust || cargo clean --quiet
rm -rf target demo demo.new
