#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Mended: a warned element of a job array, the one that has the number of the array, brought
# the whole array back: finished elements ran once more, and others were killed.
# Each element of an array is warned while another one has ended and another one runs. Only
# the warned one comes back: asked for by rank 0, by srun, or not at all where it was not to
# be. In a heterogeneous job a program without the plugin brings back the whole of it.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/../t/lib.sh"
need_plugin
need_stepper
can_mnt_mode || skip_all "two nodes with PMIx need mount namespaces"
tap_tmpdir
cd "$tap_tmp" || bail_out "no directory"
printf 'distributed_type: MULTI_CPU\nnum_processes: 1\n' >one.yaml
# The first element ends at once, the others run until they are told.
cat >array.sh <<'JOB'
#!/bin/sh
echo "$SLURM_ARRAY_TASK_ID ${SLURM_RESTART_COUNT-0} $SLURM_JOB_ID" >>"$NAME.starts"
[ "$SLURM_ARRAY_TASK_ID" != 1 ] || exit 0
srun "$@"
JOB
cluster_up --nodes 2 --mode mnt --cpus 4

starts() { # NAME: "ELEMENT RESTART" of all, sorted
    cut -d' ' -f1,2 "$1.starts" | sort | paste -sd ,
}

# The element whose id is the array's is always the last one that Slurm started.
warned() { # NAME ELEMENT STATE STEPPER-ARG [SBATCH-OPTION]: submits, warns that element
    export NAME="$1"
    # shellcheck disable=SC2086
    job=$(timeout "$HANG_S" sbatch --parsable --accel-config=one.yaml --array=1-3 -N1 -n1 -o "$1.%a.out" \
        ${5-} array.sh "$stepper" "$1.steps.$2" $4) || diag "sbatch failed"
    wait_for_job "${job}_1" COMPLETED
    wait_until has_steps "$1.steps.$2"
    while [ "$(wc -l <"$1.starts")" -lt 3 ]; do sleep 0.1; done
    timeout "$HANG_S" scancel -s USR1 "${job}_$2"
    wait_for_job "${job}_$2" "$3"
    ok $? "$1: element $2 ends $3" || diag "$(cat "$1.$2.out")"
    is "$(job_state "${job}_1") $(job_state "${job}_$((5 - $2))")" "COMPLETED RUNNING" \
        "$1: the other ones were let be"
    timeout "$HANG_S" scancel "$job"
}

# Both elements step into files of their own, so that each shows its lives.
cat >each.sh <<'EACH'
#!/bin/sh
exec "$1" "${2%.*}.$SLURM_ARRAY_TASK_ID" $3
EACH
chmod +x each.sh
sed -i 's|^srun "$@"|srun ./each.sh "$@"|' array.sh
last=3
warned asks $last COMPLETED "requeue=$tap_tmp"
is "$(starts asks)" "1 0,2 0,3 0,3 1" "rank 0 asks: only element $last starts again"
is "$(awk '$1 == 3 { print $3 }' asks.starts | sort -u)" "$job" "it is the one with the array's number"
warned other 2 COMPLETED "requeue=$tap_tmp"
is "$(starts other)" "1 0,2 0,2 1,3 0" "so does another element"
warned plugin $last COMPLETED ""
is "$(starts plugin)" "1 0,2 0,3 0,3 1" "srun asks: only element $last starts again"
like "$(cat plugin.3.out)" "accel: job ${job}_3 stopped with its state saved .*; requeued as restart 1" "under its name"
warned never $last FAILED "" --no-requeue
is "$(starts never)" "1 0,2 0,3 0" "--no-requeue: nothing starts again"
like "$(cat never.3.out)" "accel: job ${job}_3 .*; not requeued: it was submitted with --no-requeue" "which is said"

cat >het.sh <<'JOB'
#!/bin/sh
#SBATCH -N1 -n1
#SBATCH hetjob
#SBATCH -N1 -n1
srun --het-group=1 "$@"
JOB
job=$(timeout "$HANG_S" sbatch --parsable --requeue --open-mode=append -o het.out het.sh "$stepper" het.steps "requeue=$tap_tmp")
wait_until has_steps het.steps
timeout "$HANG_S" scancel -s USR1 "$job"
het_restarts() { [ "$(job_field "$job" Restarts),$(job_field $((job + 1)) Restarts)" = "1,1" ]; }
wait_until het_restarts
ok $? "a heterogeneous job: all of it is requeued" || diag "$(cat het.out)"
timeout "$HANG_S" scancel "$job"
no_node_drained
ok $? "no node is drained"
done_testing
