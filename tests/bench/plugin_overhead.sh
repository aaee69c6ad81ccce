#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# What the plugin costs: median wall time of srun with and without it, in turns, as steps of
# one allocation (no queueing) on a throw-away cluster, on the node of their tasks as in a batch
# script: not used, used, used where jobs are preempted, and used by a PMIx client at 1, 8 and 64
# tasks. And what `accel check` takes.
# Usage: tests/bench/plugin_overhead.sh [ROUNDS]   (100)
# Options are lists of words.
# shellcheck disable=SC2086
set -u
src=$(cd "$(dirname "$0")/../.." && pwd)
build=${ACCEL_BUILD:-$src}
rounds=${1:-100}
plugin=$build/srun_plugin/.libs/accel_spank.so
[ -f "$plugin" ] || { echo "build the plugin first ($plugin)" >&2; exit 1; }
dir=$(mktemp -d /tmp/accel-b.XXXXXX) || exit 1
times=$(mktemp -d) || exit 1
trap 'no_cluster; rm -rf "$times"' EXIT
trap 'exit 130' INT TERM
SLURM_CONF=$dir/etc/slurm.conf
export SLURM_CONF

# Whoever has the variable is a task to it.
no_cluster() {
    unset SLURMD_NODENAME
    "$src/scripts/accel-cluster" down --dir "$dir" >/dev/null 2>&1
}

cluster() { # OPTION...
    no_cluster
    unset SLURM_JOB_ID
    "$src/scripts/accel-cluster" up --dir "$dir" --nodes 1 --plugin "$plugin" "$@" \
        >/dev/null 2>&1 || exit 1
    cp "$dir/etc/plugstack.conf" "$times/plugstack"
    SLURM_JOB_ID=$(salloc -Q -n1 --no-shell 2>&1 | sed -n 's/.* allocation \([0-9]*\).*/\1/p')
    [ -n "$SLURM_JOB_ID" ] || SLURM_JOB_ID=$(squeue -h -o %A)
    SLURMD_NODENAME=n1
    export SLURM_JOB_ID SLURMD_NODENAME
    srun true || exit 1 # the first step warms the caches
}

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

with() { # OPTION CMD...
    cp "$times/plugstack" "$dir/etc/plugstack.conf"
    once "$times/with" srun $1 $2
}

without() { # OPTION CMD...
    : >"$dir/etc/plugstack.conf"
    once "$times/without" srun $1 $2
}

# The two change places every round, so that neither always runs first.
compare() { # NAME OPTIONS-WITH OPTIONS-WITHOUT ARGS
    name=$1
    rm -f "$times/with" "$times/without"
    i=0
    while [ "$i" -lt "$rounds" ]; do
        if [ $((i % 2)) = 0 ]; then
            with "$2" "$4" && without "$3" "$4"
        else
            without "$3" "$4" && with "$2" "$4"
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

printf 'distributed_type: MULTI_CPU\nnum_processes: 1\n' >"$times/one.yaml"
printf 'distributed_type: MULTI_CPU\n' >"$times/any.yaml"
use="--mpi=none --accel-config=$times/one.yaml"
printf '%-22s %6s %9s %9s %9s\n' "median ms" rounds without with added
cluster
compare "used, with preemption" "$use" "--mpi=none" "--overlap -n1 true"
cluster --set PreemptType=preempt/none --set PreemptMode=OFF # Slurm's default
compare "not used" "" "" "--overlap -n1 true"
compare "client (srun --usage)" "" "" "--usage"
compare "used" "$use" "--mpi=none" "--overlap -n1 true"
client=$build/tests/bench/bench_boot
if [ -x "$client" ]; then
    rounds=$(((rounds + 4) / 5))
    for tasks in 1 8 64; do
        compare "PMIx client, $tasks tasks" "--accel-config=$times/any.yaml" "--mpi=pmix" \
            "--overlap -O -n$tasks $client"
    done
else
    echo "tests/bench/bench_boot is not built: no PMIx client"
fi
: >"$times/with"
i=0
while [ "$i" -lt 100 ]; do
    once "$times/with" "$build/accel" check -q "$times/one.yaml"
    i=$((i + 1))
done
sort -n "$times/with" | awk '{ t[NR] = $1 / 1000 }
    END { printf "accel check            %6d %29.1f\n", NR, t[int((NR + 1) / 2)] }'
echo "limits: 3.0 ms added to a step (4.0 with preemption), 1.1 times the PMIx client, 10 ms for accel check"
