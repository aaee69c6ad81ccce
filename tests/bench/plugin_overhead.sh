#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# What the plugin costs a srun that does not use it: median wall time of `srun true` with
# and without the plugin, in turns, as steps of one allocation (no queueing) on a
# throw-away cluster.
# Usage: tests/bench/plugin_overhead.sh [ROUNDS]   (100)
set -u
src=$(cd "$(dirname "$0")/../.." && pwd)
build=${ACCEL_BUILD:-$src}
rounds=${1:-100}
plugin=$build/srun_plugin/.libs/accel_spank.so
[ -f "$plugin" ] || { echo "build the plugin first ($plugin)" >&2; exit 1; }
dir=$(mktemp -d /tmp/accel-b.XXXXXX) || exit 1
times=$(mktemp -d) || exit 1
trap '"$src/scripts/accel-cluster" down --dir "$dir" >/dev/null 2>&1; rm -rf "$times"' EXIT
trap 'exit 130' INT TERM
"$src/scripts/accel-cluster" up --dir "$dir" --nodes 1 --plugin "$plugin" >/dev/null 2>&1 || exit 1
SLURM_CONF=$dir/etc/slurm.conf
export SLURM_CONF
cp "$dir/etc/plugstack.conf" "$times/plugstack"
SLURM_JOB_ID=$(salloc -Q -n1 --no-shell 2>&1 | sed -n 's/.* allocation \([0-9]*\).*/\1/p')
[ -n "$SLURM_JOB_ID" ] || SLURM_JOB_ID=$(squeue -h -o %A)
export SLURM_JOB_ID
srun true || exit 1 # the first step warms the caches

# Milliseconds of one `srun true`, appended to FILE. srun and slurmstepd read
# plugstack.conf at every launch, so that changing it is enough.
once() { # FILE
    start=$(date +%s%N)
    srun -n1 true || exit 1
    end=$(date +%s%N)
    echo $(((end - start) / 1000)) >>"$1"
}

i=0
while [ "$i" -lt "$rounds" ]; do
    cp "$times/plugstack" "$dir/etc/plugstack.conf"
    once "$times/with"
    : >"$dir/etc/plugstack.conf"
    once "$times/without"
    i=$((i + 1))
done
for what in without with; do
    sort -n "$times/$what" | awk -v what="$what" '
        { t[NR] = $1 / 1000 }
        END {
            m = NR % 2 ? t[(NR + 1) / 2] : (t[NR / 2] + t[NR / 2 + 1]) / 2
            printf "%-8s %d runs: median %.1f ms, p10 %.1f, p90 %.1f\n", what, NR, m,
                t[int(NR * 0.1) + 1], t[int(NR * 0.9)]
            print m >"/dev/stderr"
        }' 2>>"$times/medians"
done
awk 'NR == 1 { a = $1 } NR == 2 { printf "added by the plugin: %.1f ms (limit 5.0)\n", $1 - a }' \
    "$times/medians"
