#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Mended: a step with a config asked the controller for its layout also where a job has one node
# and srun knows it, for its partition where nothing is preempted, and for the job at the end where
# an exit code of 0 tells all: half a millisecond each, of the five that such a step took longer.
# Counted by the controller itself: which requests a step adds.
# Variables in quotes are those of the tasks.
# shellcheck disable=SC2016
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/../t/lib.sh"

need_plugin
need_program sdiag
tap_tmpdir
cd "$tap_tmp" || bail_out "no directory"
cluster_up --nodes 2
printf 'distributed_type: MULTI_CPU\n' >job.yaml

# requests SRUN-OPTION...: the controller's counts of what clients ask for, "NAME COUNT" each
requests() {
    sdiag -r >/dev/null 2>&1
    run_srun --mpi=none "$@" >/dev/null
    sdiag | sed -n 's/^[[:space:]]*\(REQUEST_[A-Z_]*_LAYOUT\|REQUEST_NODE_INFO[A-Z_]*\|REQUEST_JOB_INFO[A-Z_]*\|REQUEST_PARTITION_INFO\|REQUEST_BUILD_INFO\) *([^)]*) *count:\([0-9]*\).*/\1 \2/p' | sort
}
report=$(requests -n1 true)
is "$report" "" "a step without a config asks for nothing"
report=$(requests -n2 -N1 --accel-config=job.yaml true)
unlike "$report" LAYOUT "one node: the layout is known" || diag "$report"
is "$(printf '%s\n' "$report" | awk '{ n += $2 } END { print n }')" 4 "four requests are left" || diag "$report"
run_srun --mpi=none -n2 -N1 --accel-config=job.yaml sh -c 'echo "$RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE"'
is "$(printf '%s\n' "$srun_out" | sort | paste -sd ' ')" "0/2 0/2 1/2 1/2" "each task has its place"
run_srun --mpi=none -n3 -N2 --accel-config=job.yaml sh -c 'echo "$RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE"'
is "$(printf '%s\n' "$srun_out" | sort | paste -sd ' ')" "0/3 0/2 1/3 1/2 2/3 0/1" "also on two nodes"
out=$(timeout "$HANG_S" salloc -Q -N2 srun --mpi=none -N1 -n1 -w n2 --accel-config=job.yaml \
    sh -c 'echo "$RANK/$WORLD_SIZE $MASTER_ADDR $SLURMD_NODENAME"' 2>&1)
like "$out" '^0/1 [^ ]+ n2$' "a step of one node in a larger job"
printf 'distributed_type: MULTI_CPU\naccel: {preemption: {enabled: false}}\n' >off.yaml
report=$(requests -n2 -N1 --accel-config=off.yaml true)
is "$report" "REQUEST_NODE_INFO_SINGLE 1" "without preemption only the address of the node"
cluster_down

cluster_up --nodes 1 --set PreemptType=preempt/none --set PreemptMode=OFF
report=$(requests -n2 --accel-config=job.yaml true)
like "$report" 'REQUEST_JOB_INFO_SINGLE 2' "an srun that may outlive the node looks at the end"
SLURMD_NODENAME=n1 # as in a batch script
export SLURMD_NODENAME
report=$(requests -n2 --accel-config=job.yaml true)
is "$(echo "$report" | paste -sd ' ')" "REQUEST_JOB_INFO_SINGLE 1 REQUEST_NODE_INFO_SINGLE 1" \
    "where nothing is preempted: the job and its node"
run_srun --mpi=none -n1 --accel-config=job.yaml sh -c 'echo "$ACCEL_PREEMPTION_NOTICE"'
like "$srun_out" '^low OFF 0 [0-9]+$' "the tasks know the terms all the same"
report=$(requests -n2 --accel-config=job.yaml sh -c 'exit 3')
like "$report" 'REQUEST_JOB_INFO_SINGLE 2' "the end of one that failed is looked at"
report=$(requests -t 1 -n2 --accel-config=job.yaml true)
like "$report" 'REQUEST_JOB_INFO_SINGLE 2' "and that of one that was near its time limit"
unset SLURMD_NODENAME
cluster_down
done_testing
