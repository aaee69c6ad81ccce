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

# Microseconds of one command, appended to FILE. srun and slurmstepd read plugstack.conf at
# every launch, so that changing it is enough.
once() { # FILE CMD...
    file=$1
    shift
    start=$(date +%s%N)
    "$@" >/dev/null || exit 1
    end=$(date +%s%N)
    echo $(((end - start) / 1000)) >>"$file"
}

with() { # CMD...
    cp "$times/plugstack" "$dir/etc/plugstack.conf"
    once "$times/with" "$@"
}

without() { # CMD...
    : >"$dir/etc/plugstack.conf"
    once "$times/without" "$@"
}

# The two change places every round, so that neither always runs first.
compare() { # NAME CMD...
    name=$1
    shift
    rm -f "$times/with" "$times/without"
    i=0
    while [ "$i" -lt "$rounds" ]; do
        if [ $((i % 2)) = 0 ]; then
            with "$@" && without "$@"
        else
            without "$@" && with "$@"
        fi
        i=$((i + 1))
    done
    for what in without with; do
        sort -n "$times/$what" | awk '
            { t[NR] = $1 / 1000 }
            END { print NR % 2 ? t[(NR + 1) / 2] : (t[NR / 2] + t[NR / 2 + 1]) / 2,
                  t[int(NR * 0.1) + 1], t[int(NR * 0.9)] }'
    done | awk -v name="$name" -v rounds="$rounds" '
        NR == 1 { a = $1; la = $2; ha = $3 }
        END { printf "%-22s %6d %9.1f %9.1f %9.1f   p10..p90 %.1f..%.1f, %.1f..%.1f\n",
              name, rounds, a, $1, $1 - a, la, ha, $2, $3 }'
}

printf '%-22s %6s %9s %9s %9s\n' "median ms" rounds without with added
compare "step (srun true)" srun --overlap -n1 true
compare "client (srun --usage)" srun --usage
echo "limit: 5.0 ms added to a step"
