#!/bin/sh
# `make fuzz`: runs every target for SECONDS_EACH seconds, guided by coverage, on stable rustc.
set -eu
cd "$(dirname "$0")/.."
. scripts/lib.sh

ensure_rust "make fuzz"
# libFuzzer itself is C++.
have c++ || apt_install g++ || die "libFuzzer needs a C++ compiler: type 'sudo apt-get install g++', then 'make fuzz' again"
exec bash fuzz/run.sh "${SECONDS_EACH:-600}"
