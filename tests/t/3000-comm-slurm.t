#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Bootstrap and every collective under srun (one node, two nodes) and mpirun.
. "$(dirname "$0")/lib.sh"
need_slurm

check=$ACCEL_BUILD/tests/unit/comm_check
[ -x "$check" ] || skip_all "tests/unit/comm_check is not built"
built_with() { # LIBRARY
    grep -q -e "-DHAVE_$1" "$ACCEL_BUILD/Makefile"
}
built_with PMIX || skip_all "built without PMIx"
tap_tmpdir

# Facts line of rank 0 in $out; the last lines of stderr as diagnostics.
step() { # COMMAND...
    timeout "$HANG_S" "$@" >"$tap_tmp/out" 2>"$tap_tmp/err"
    status=$?
    [ $status -eq 0 ] || diag "$(tail -n 5 "$tap_tmp/err")"
    out=$(cat "$tap_tmp/out")
}

says() { # WORDS DESCRIPTION
    case $out in
    *"$1"*) ok 0 "$2" ;;
    *) ok 1 "$2"; diag "$out" ;;
    esac
}

cluster_up --nodes 1
step srun -n4 --overcommit --mpi=pmix "$check" --elems 4099
is "$status" 0 "4 ranks on one node"
says "method=pmix size=4 nodes=1 local=4 backend=shm" "  through PMIx and shared memory"
shm_hash=${out##*hash=}
if built_with UCX; then
    step srun -n4 --overcommit --mpi=pmix "$check" --elems 4099 --backend ucx
    is "$status" 0 "4 ranks on one node over UCX"
    says "hash=$shm_hash" "  the same bits"
else
    skip 2 "built without UCX"
fi
timeout "$HANG_S" srun -n2 --overcommit --mpi=none "$check" >"$tap_tmp/out" 2>"$tap_tmp/err"
is $? 69 "several tasks without PMIx are refused"
out=$(cat "$tap_tmp/err")
says "--mpi=pmix" "  with the cure"
step srun -n1 --mpi=none "$check" --elems 1000
says "method=single size=1" "one task without PMIx is a world of one"
timeout "$HANG_S" srun -K0 -n3 --overcommit --mpi=pmix "$check" --lose 1 >"$tap_tmp/out" 2>&1
out=$(cat "$tap_tmp/out")
# one of them may hear it from the other
is "$(printf '%s\n' "$out" | grep -c '^rank [02]: .*barrier #1: rank 1 died')" 2 \
    "a killed rank is named by both others"
cluster_down

for mode in mnt net; do
    if ! "can_${mode}_mode"; then
        skip 2 "this system allows no $mode mode"
        continue
    fi
    if ! built_with UCX; then
        skip 2 "built without UCX"
        continue
    fi
    cluster_up --nodes 2 --mode "$mode"
    step srun -N2 -n4 --ntasks-per-node=2 --overcommit --mpi=pmix "$check" --elems 4099
    says "size=4 nodes=2 local=2 backend=ucx" "2 nodes x 2 ranks in $mode mode"
    says "hash=$shm_hash" "  the same bits as in shared memory"
    cluster_down
done

if command -v mpirun >/dev/null 2>&1; then
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    export OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM
    step mpirun --oversubscribe -n 4 "$check" --elems 4099
    says "method=pmix size=4 nodes=1 local=4 backend=shm" "4 ranks under mpirun"
    says "hash=$shm_hash" "  the same bits as under srun"
else
    skip 2 "mpirun is not installed"
fi
done_testing
