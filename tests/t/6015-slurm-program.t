#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# accel_options.set in a job step: srun has resolved the user's sources before the program
# runs, and they win; what the site locks, the program cannot change.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"

need_plugin
tap_tmpdir
cd "$tap_tmp" || bail_out "no directory"
settings=$ACCEL_BUILD/tests/helpers/settings
OMP_NUM_THREADS=1
export OMP_NUM_THREADS
cluster_up --nodes 1
cat >job.yaml <<END
distributed_type: FSDP
num_processes: 2
use_cpu: true
mixed_precision: bf16
END

run_srun --accel-config=job.yaml "$settings" mixed_precision=no \
    fsdp_sharding_strategy=NO_SHARD accel.checkpoint.keep=5
contains "$srun_out" \
    "2 ranks, config of srun, bfloat16, NO_SHARD, set: fsdp_sharding_strategy accel.checkpoint.keep" \
    "what srun resolved wins, the rest is the program's" || diag "$srun_out"
like "$srun_out" "the program sets mixed_precision, but ([^ ]*/)?job.yaml:4 has precedence: bf16" \
    "and the log says where the value is from"
run_srun --accel-config=job.yaml "$settings" accel.preemption.lead_seconds=60
contains "$srun_out" "'lead_seconds' is decided before the program starts" \
    "what srun asked Slurm for is decided"
cluster_down
done_testing
