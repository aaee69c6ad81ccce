#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Mended: where no cgroup holds a task to its CPUs, a rank computed with as many threads as the
# node has cores, whatever Slurm had granted. Two ranks beside another job waited for cores that
# were not theirs. Threads are the grant; OMP_NUM_THREADS of the user's still counts.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/../t/lib.sh"

settings=$ACCEL_BUILD/tests/helpers/settings
[ -x "$settings" ] || skip_all "tests/helpers/settings is not built"
cpus=$(nproc)
# Of a core with two hardware threads one counts.
cores=$(LC_ALL=C lscpu -p=Core,Socket 2>/dev/null | grep -v '^#' | sort -u | wc -l)
if [ "$cpus" -lt 2 ] || [ "$cores" != "$cpus" ]; then
    skip_all "needs two cores at least, without hardware threads"
fi
unset ACCEL_CONFIG ACCEL_CONFIG_RESOLVED OMP_NUM_THREADS ACCEL_OMP_NUM_THREADS \
    SLURM_JOB_ID SLURM_CPUS_PER_TASK SLURM_CPUS_ON_NODE CUDA_VISIBLE_DEVICES
tap_tmpdir
cd "$tap_tmp" || bail_out "no directory"

threads() { # [VAR=VALUE]...: of a run by itself
    env "$@" timeout "$HANG_S" "$settings" distributed_type=NO accel.device=cpu 2>err |
        sed -n 's/ threads$//p'
}
is "$(threads)" "$cpus" "without Slurm: all cores"
is "$(threads SLURM_CPUS_PER_TASK=1 SLURM_CPUS_ON_NODE=1)" 1 "srun -n1 -c1"
is "$(threads SLURM_CPUS_ON_NODE=1)" 1 "srun -n1"
is "$(threads SLURM_CPUS_PER_TASK=1 SLURM_CPUS_ON_NODE="$cpus")" 1 "-c1 in a larger job"
is "$(threads SLURM_CPUS_ON_NODE="$cpus")" "$cpus" "the whole node"
is "$(threads SLURM_CPUS_PER_TASK=$((4 * cpus)))" "$cpus" "never more than there are"
is "$(threads SLURM_CPUS_PER_TASK=junk SLURM_CPUS_ON_NODE=0)" "$cpus" "what is no number says nothing"
is "$(threads SLURM_CPUS_PER_TASK=1 OMP_NUM_THREADS=2)" 2 "the user's number counts"
is "$(threads SLURM_CPUS_PER_TASK=1 OMP_NUM_THREADS=2 ACCEL_OMP_NUM_THREADS=2)" 1 "accel's own does not"

if command -v slurmctld >/dev/null 2>&1 && plugin_loads; then
    cluster_up --nodes 1 --cpus "$cpus"
    printf 'distributed_type: MULTI_CPU\nuse_cpu: true\n' >job.yaml
    step() { # SRUN-OPTION...: of rank 0
        run_srun "$@" --accel-config=job.yaml "$settings"
        printf '%s\n' "$srun_out" | sed -n 's/ threads$//p'
    }
    is "$(step -n1 -c1)" 1 "a step of one CPU without cgroups"
    is "$(step -n1 -c2)" 2 "one of two"
    is "$(step -n2)" 1 "two ranks of two CPUs"
    cluster_down
else
    skip 3 "no Slurm"
fi
done_testing
