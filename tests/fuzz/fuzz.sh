#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Runs one fuzz target over its corpus and as many mutations as FUZZ_RUNS says. Built with
# the replay driver they are the same ones every time for one FUZZ_SEED; built with
# --enable-fuzz (clang), libFuzzer finds its own, in a copy of the corpus.
#     fuzz.sh NAME
[ -n "${ACCEL_SRC:-}" ] || ACCEL_SRC=$(cd "$(dirname "$0")/../.." && pwd)
target=${ACCEL_BUILD:-$ACCEL_SRC}/tests/fuzz/fuzz_$1
data=$ACCEL_SRC/tests/data
runs=${FUZZ_RUNS:-10000}
seed=${FUZZ_SEED:-1}
case $1 in
config) set -- "$data"/config/good/*.yaml "$data"/config/bad/*.yaml ;;
manifest) set -- "$data"/manifest/*.txt ;;
sources | environ | deepspeed | safetensors | hf_config | tokenizer | tokens)
    set -- "$data/fuzz/$1"/*
    ;;
*)
    echo "fuzz.sh: no target '$1'" >&2
    exit 64
    ;;
esac
if ! grep -q '^ACCEL_CFLAGS = .*-fsanitize=fuzzer-no-link' "${ACCEL_BUILD:-$ACCEL_SRC}/Makefile" 2>/dev/null; then
    exec "$target" -n "$runs" -s "$seed" "$@"
fi
corpus=$(mktemp -d "${TMPDIR:-/tmp}/accel-fuzz.XXXXXX") || exit 73
trap 'rm -rf "$corpus"' EXIT
cp "$@" "$corpus"
"$target" -runs="$runs" -seed="$seed" -max_len=1024 -timeout=20 -rss_limit_mb=2048 \
    -artifact_prefix="${FUZZ_FINDINGS:-./}" -print_final_stats=1 "$corpus" 2>&1
rc=$?
echo "1..1"
if [ $rc = 0 ]; then
    echo "ok 1 - $runs runs of libFuzzer"
else
    echo "not ok 1 - libFuzzer ended with $rc"
fi
exit $rc
