#!/bin/sh
# `make run`: installs rustc if it is missing, builds the release, serves DIR. Idempotent; quiet when all is well.
set -eu
from=$PWD
cd "$(dirname "$0")/.."
. scripts/lib.sh

ensure_rust "make run"
target=$(target_dir)
server=$target/release/ackpace
[ -x "$server" ] || say "building ackpace, once (release; a minute or two)"
cargo build --quiet --release --locked --package ackpace ||
    die "the build failed: the lines above say why"

case ${DIR:-} in
'')
    sh scripts/demo.sh demo
    DIR=demo
    ;;
/*) ;;
*) DIR=$from/$DIR ;;
esac
# ARGS is a line of options as typed in a shell, split at blanks on purpose.
# shellcheck disable=SC2086
exec "$server" serve "$DIR" ${ARGS:-}
