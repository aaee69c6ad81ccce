#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# accel test as a step: ranks on one node and on two, inside an allocation, in a directory
# that the nodes do not share, and with a rank that dies.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"
need_plugin
grep -q -e -DHAVE_PMIX "$ACCEL_BUILD/Makefile" || skip_all "built without PMIx"

tap_tmpdir
accel=$ACCEL_BUILD/accel
cd "$tap_tmp" || bail_out "no directory"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS

config() { # FILE RANKS NODES
    printf 'distributed_type: FSDP\nnum_processes: %s\nnum_machines: %s\n' "$2" "$3" >"$1"
}
step() { # COMMAND...: sets code, out, err
    timeout "$HANG_S" "$@" >out 2>err
    code=$?
    out=$(cat out)
    err=$(cat err)
}
good() { # DESCRIPTION
    is "$code" 0 "$1" || diag "$err"
    is "$(awk 'NR > 1 && $2 != "ok"' out)" "" "  every check is good"
    is "$(awk 'END { print NR }' out)" 12 "  there are eleven"
}

config one.yaml 2 1
cluster_up --nodes 1
step srun --overcommit --accel-config=one.yaml "$accel" test
good "2 ranks as a step"
like "$out" '^map .* 2 ranks on 1 node \(.*: 0-1\), pmix, shm' "  the map"
step salloc -n 2 --overcommit -Q "$accel" test --config one.yaml
good "inside an allocation"
contains "$err" "starting: srun --accel-config=one.yaml" "  says what it starts"
step sh -c "trap '' USR1; exec srun --overcommit --accel-config=one.yaml '$accel' test"
is "$(grep -c '^signal ' out)" 1 "a failing step prints its table before it ends" ||
    diag "$code $err"
cluster_down

config two.yaml 4 2
if can_mnt_mode && grep -q -e -DHAVE_UCX "$ACCEL_BUILD/Makefile"; then
    cluster_up --nodes 2 --mode mnt
    step srun -N2 -n4 --ntasks-per-node=2 --overcommit --accel-config=two.yaml "$accel" test
    good "4 ranks on 2 nodes"
    like "$out" '^map .* 4 ranks on 2 nodes \(.*: 0-1, .*: 2-3\), pmix, ucx' "  the map"
    is "$(ls -d accel-selftest.* 2>/dev/null)" "" "  nothing is left in the current directory"
    cluster_down
else
    skip 5 "this system allows no mnt mode, or built without UCX"
fi
done_testing
