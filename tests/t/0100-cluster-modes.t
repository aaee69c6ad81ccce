#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# A throw-away cluster comes up in each mode, runs a PMIx step on every node, and goes down
# without leaving a process, an interface or a file.

# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"
need_slurm

try_mode() { # MODE NODES WANTED-HOST-NAMES
    started=$(date +%s%N)
    cluster_up --mode "$1" --nodes "$2" --gpus 2
    diag "mode $1, $2 node(s): up in $((($(date +%s%N) - started) / 1000000)) ms"
    passes "$1: status says all is well" "$accel_cluster" status --dir "$cluster_dir"
    # shellcheck disable=SC2016 # for the tasks
    run_srun -N"$2" --ntasks-per-node=2 --gpus-per-node=2 --mpi=pmix \
        sh -c 'echo "$(uname -n) $SLURMD_NODENAME $PMIX_RANK gpu=$CUDA_VISIBLE_DEVICES"'
    is "$srun_rc" 0 "$1: a PMIx step on $2 node(s) runs"
    is "$(echo "$srun_out" | grep -c ' gpu=0,1$')" $((2 * $2)) "$1: every rank sees 2 GPUs"
    is "$(echo "$srun_out" | awk '{ print $3 }' | sort -n | tr '\n' ' ')" \
        "$(seq 0 $((2 * $2 - 1)) | tr '\n' ' ')" "$1: each rank once"
    is "$(echo "$srun_out" | awk '{ print $1 }' | sort -u | tr '\n' ' ')" "$3" \
        "$1: host names"
    run_srun -N1 -n8 true
    is "$srun_rc" 0 "$1: 8 ranks on one node without --overcommit"
    no_node_drained
    ok $? "$1: no node drained"
    was=$cluster_dir
    cluster_down
    ok $? "$1: down succeeds"
    cluster_gone "$was"
    ok $? "$1: nothing is left"
}

here=$(uname -n)
try_mode plain 1 "$here "
try_mode plain 2 "$here "
if can_mnt_mode; then try_mode mnt 2 "$here "; else skip 8 "no mount namespaces here"; fi
if can_net_mode; then try_mode net 2 'n1 n2 '; else skip 8 "network namespaces need root"; fi
done_testing
