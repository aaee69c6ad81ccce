#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Python programs that are preempted at random moments, on two nodes with two ranks each, come
# back by themselves and end as if nothing had happened: make check-python. Trainer scripts
# unchanged (plain, with JIT checkpoints, with workers and evaluations), a DDP loop, an FSDP2
# loop; the notice SIGTERM or SIGUSR1, with a grace time or none, as batch job and as bare srun.
#     random_stops.sh STATE [COUNT [SEED [NAMES]]]   COUNT: runs of each program; 20
# STATE is a directory that keeps the logs and what has passed: the same command again does only
# the other runs. NAMES: shell patterns for the runs to do, as 'ddp-*,*-user-none-*'.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/../t/lib.sh"
# shellcheck source=tests/t/peers.sh
. "$ACCEL_SRC/tests/t/peers.sh"
[ $# -gt 0 ] || bail_out "random_stops.sh wants a directory for its results"
need_plugin
tap_tmpdir
mkdir -p "$1" && state=$(cd "$1" && pwd) || bail_out "cannot make $1"
count=${2:-20} seed=${3:-1} names=${4:-*}
need_peers "torch, transformers, accelerate"
mkdir -p root/share/accel && ln -s "$ACCEL_SRC/python" root/share/accel/python &&
    ln -s "$ACCEL_SRC/python/site" root/share/accel/python-site || bail_out "no directory"
tool=$ACCEL_SRC/tests/preempt
"$python" "$tool/draw.py" "$count" "$seed" "$names" >runs || bail_out "no runs are drawn"
[ -s runs ] || bail_out "no run has a name like $names"
diag "$(wc -l <runs) runs; seed $seed; results in $state"

judged() { # NAME KEY=VALUE...: the run that it names, unless it has passed before
    judged_name=$1
    shift
    [ ! -e "$state/$judged_name.passed" ] || {
        ok 0 "$judged_name (before)"
        return
    }
    # shellcheck disable=SC2086
    "$python" "$tool/run_one.py" "$state" "$@" >"$judged_name.wrong" 2>&1 && [ ! -s "$judged_name.wrong" ]
    ok $? "$judged_name" || {
        diag "$(cat "$judged_name.wrong")"
        diag "its output is in $state/$judged_name/out"
        return 1
    }
    : >"$state/$judged_name.passed"
}

# The run that nobody disturbs, once for each program.
need_undisturbed() { # PROGRAM
    [ ! -e "$state/undisturbed-$1.json" ] || return 0
    judged "undisturbed-$1" "name=undisturbed-$1" "program=$1" form=bare grace=grace moment=none
}

for kind in term-grace user-grace term-none user-none; do
    grep -- "-$kind-" runs >these || continue
    grace=60
    [ "${kind#*-}" = grace ] || grace=0
    cluster_up --nodes 2 --cpus 2 --kill-wait 8 --grace $grace --notice "${kind%-*}"
    dir=$cluster_dir
    while read -r run <&3; do
        program=${run#*program=}
        need_undisturbed "${program%% *}" || continue
        name=${run#name=}
        # shellcheck disable=SC2086
        judged "${name%% *}" $run
    done 3<these
    no_node_drained
    ok $? "$kind: no node is drained"
    cluster_down
    cluster_gone "$dir"
    ok $? "$kind: nothing of the cluster is left"
done
done_testing
