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
# shellcheck source=tests/preempt/preempted.sh
. "$ACCEL_SRC/tests/preempt/preempted.sh"
[ $# -gt 0 ] || bail_out "random_stops.sh wants a directory for its results"
{ mkdir -p "$1" && state=$(cd "$1" && pwd); } || bail_out "cannot make $1"
count=${2:-20} seed=${3:-1} names=${4:-*}
need_preempted
"$python" "$ACCEL_SRC/tests/preempt/draw.py" "$count" "$seed" "$names" >runs ||
    bail_out "no runs are drawn"
[ -s runs ] || bail_out "no run has a name like $names"
diag "$(wc -l <runs) runs; seed $seed; results in $state"

for kind in term-grace user-grace term-none user-none; do
    grep -- "-$kind-" runs >these || continue
    grace=60
    [ "${kind#*-}" = grace ] || grace=0
    cluster_up --nodes 2 --cpus 2 --kill-wait 8 --grace $grace --notice "${kind%-*}"
    dir=$cluster_dir
    while read -r name program facts <&3; do
        need_undisturbed "${program#*=}" || continue
        # shellcheck disable=SC2086
        judged "${name#*=}" "$program" $facts
    done 3<these
    no_node_drained
    ok $? "$kind: no node is drained"
    cluster_down
    cluster_gone "$dir"
    ok $? "$kind: nothing of the cluster is left"
done
done_testing
