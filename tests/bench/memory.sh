#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Peak memory of a rank: what the plan prints against what the kernel measures (they are to
# agree within 10 %). One line per case: ranks, strategy, precision, planned, measured, ratio.
# Usage: tests/bench/memory.sh [LAYERS WIDTH]     (8 512); from a built tree, no Slurm.
here=$(cd "$(dirname "$0")/../.." && pwd)
build=${ACCEL_BUILD:-$here}
layers=${1:-8} width=${2:-512}
tmp=$(mktemp -d "${TMPDIR:-/tmp}/accel-bench.XXXXXX") || exit 1
trap 'rm -rf "$tmp"' EXIT
cat "$here"/LICENSE "$here"/README.md >"$tmp/text.txt"

one_case() { # RANKS STRATEGY PRECISION
    cat >"$tmp/c.yaml" <<END
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config:
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_sharding_strategy: $2
mixed_precision: $3
num_processes: $1
use_cpu: true
END
    rm -rf "$tmp/out"
    "$build/accel" launch --config "$tmp/c.yaml" -n "$1" "$build/examples/train" \
        --layers "$layers" --width "$width" --heads 8 --seq 128 --batch 4 --steps 4 \
        --sample 0 --data "$tmp/text.txt" --out "$tmp/out" >"$tmp/log" 2>&1 || {
        cat "$tmp/log"
        exit 1
    }
    planned=$(awk '$1 == "peak" { u["KiB"] = 1024; u["MiB"] = 1024 ^ 2; u["GiB"] = 1024 ^ 3
        printf "%.0f", $2 * u[$3] }' "$tmp/log")
    measured=$(sed -n 's/.*"mem_peak_bytes":\([0-9]*\).*/\1/p' "$tmp/out/log.jsonl" | tail -n 1)
    awk -v r="$1" -v s="$2" -v p="$3" -v a="$planned" -v b="$measured" 'BEGIN {
        printf "%5d %-10s %-5s %12.1f %12.1f %7.3f\n", r, s, p, a / 1048576, b / 1048576, b / a }'
}

printf '%5s %-10s %-5s %12s %12s %7s\n' ranks strategy prec planned_MiB measured_MiB ratio
for ranks in 1 2; do
    for strategy in FULL_SHARD NO_SHARD; do
        one_case $ranks $strategy no
        one_case $ranks $strategy bf16
    done
done
