#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# What a task sees: ranks, rendezvous and restart count under --accel-config, in srun, in
# a batch job and after #SBATCH; the user's own values; and nothing at all without it.
# What the tasks expand stands in single quotes.
# shellcheck disable=SC2016
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"

need_plugin
plugin=$ACCEL_BUILD/srun_plugin/.libs/accel_spank.so
[ -f "$plugin" ] || skip_all "the plugin is not built"
can_mnt_mode || skip_all "two nodes with PMIx need mount namespaces"
cluster_up --nodes 2 --mode mnt
tap_tmpdir
mkdir -p "$tap_tmp/jobs" "$tap_tmp/elsewhere"
cd "$tap_tmp/jobs" || bail_out "no directory"

printf 'distributed_type: MULTI_CPU\nnum_machines: 2\nnum_processes: 4\n' >four.yaml
printf 'distributed_type: MULTI_CPU\n' >any.yaml
cat >show.sh <<'SHOW'
#!/bin/sh
echo "$ACCEL_RANK/$ACCEL_WORLD_SIZE $ACCEL_LOCAL_RANK/$ACCEL_LOCAL_WORLD_SIZE" \
    "$ACCEL_NODE_RANK/$ACCEL_NUM_NODES restart $ACCEL_RESTART_COUNT" \
    "torch $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE"
SHOW
chmod +x show.sh
four_lines='0/4 0/2 0/2 restart 0 torch 0/4 0/2
1/4 1/2 0/2 restart 0 torch 1/4 1/2
2/4 0/2 1/2 restart 0 torch 2/4 0/2
3/4 1/2 1/2 restart 0 torch 3/4 1/2'

run_srun --accel-config=four.yaml ./show.sh
is "$srun_rc" 0 "srun with the option runs"
is "$(printf '%s\n' "$srun_out" | sort)" "$four_lines" \
    "4 tasks on 2 nodes without -n or -N, each with its ranks, nothing else printed"

run_srun --accel-conf four.yaml -l sh -c 'echo $MASTER_ADDR $MASTER_PORT $ACCEL_CONFIG $SLURM_MPI_TYPE'
is "$(printf '%s\n' "$srun_out" | sed -n 's/^[0-9]*: //p' | sort | uniq -c | wc -l)" 1 \
    "one rendezvous for all tasks; the option may be abbreviated"
like "$srun_out" "^0: [0-9.]+ [0-9]+ $tap_tmp/jobs/four.yaml pmix\$" \
    "address, port, absolute config path, pmix"
unlike "$srun_out" ' 29500 ' "not the crowded default port"
run_srun -N2 -n2 --accel-config=any.yaml sh -c '[ $RANK != 0 ] || timeout "$HANG_S" python3 -c "
import os, socket
socket.socket().bind((\"\", int(os.environ[\"MASTER_PORT\"])))"'
is "$srun_rc" 0 "rank 0 can bind the port"

srun_out=$(RANK=7 MASTER_PORT=1234 WORLD_SIZE=2 timeout "$HANG_S" srun -N1 -n2 \
    --accel-config=any.yaml sh -c 'echo $RANK $MASTER_PORT $LOCAL_RANK' 2>err | sort)
is "$srun_out" "7 1234 0
7 1234 1" "the user's own values stay"
is "$(grep -v '^srun: job' err)" "srun: accel: kept from your environment: RANK=7 MASTER_PORT=1234 (unset them to let accel set them)" \
    "and one line says so; WORLD_SIZE agrees and needs none"
srun_out=$(ACCELERATE_MIXED_PRECISION=fp16 OMP_NUM_THREADS=3 ACCELERATE_USE_CPU=true timeout "$HANG_S" srun \
    -n1 --accel-config=any.yaml sh -c 'echo $ACCELERATE_MIXED_PRECISION $OMP_NUM_THREADS \
    $ACCELERATE_USE_CPU ${ACCEL_OMP_NUM_THREADS-none}' 2>err)
is "$srun_out" "fp16 3 true none" "so do values against the config"
is "$(grep -v '^srun: job' err)" "srun: accel: kept from your environment: ACCELERATE_MIXED_PRECISION=fp16 (the config says no) (unset them to let accel set them)" \
    "one line names those that contradict it; the same truth and threads do not"

run_srun --mpi=none --accel-config=any.yaml -n1 sh -c 'echo pmix=${PMIX_RANK-none}'
is "$srun_out" pmix=none "--mpi on the command line wins"
run_srun -n1 --accel-config=any.yaml sh -c '
    echo "${SLURM_SIGNAL-none} ${SLURM_KILL_BAD_EXIT-none} ${SBATCH_SIGNAL-none} ${SLURM_DISABLE_STATUS-none}"'
is "$srun_out" "none none none none" "launch defaults do not leak into the task"

# A batch job: relative path, run in another directory, the script itself untouched.
cat >job.sh <<'JOB'
#!/bin/sh
#SBATCH --ntasks=4 --nodes=2 --ntasks-per-node=2
echo "script: ${RANK-none} ${ACCEL_RANK-none} ${ACCEL_CONFIG_RESOLVED-none}"
srun -Q "$1"
srun -Q --accel-config=none -n1 -N1 sh -c 'echo "off: ${RANK-none} ${ACCEL_RANK-none}"'
srun -Q -n1 -N1 --accel-config="$2" sh -c 'echo "other: $RANK/$WORLD_SIZE"'
JOB
sed 's/^#SBATCH.*/&\n#SBATCH --accel-config=four.yaml --signal=TERM@90/' job.sh >job2.sh
want="script: none none none
$four_lines
off: none none
other: 0/1"
for form in option directive; do
    if [ $form = option ]; then
        set -- --accel-config=four.yaml job.sh
    else
        set -- job2.sh
    fi
    # Standard error apart: srun says there that nodes are still busy with the step before.
    job=$(timeout "$HANG_S" sbatch --parsable -D "$tap_tmp/elsewhere" -o "$tap_tmp/$form.out" \
        -e "$tap_tmp/$form.err" "$@" \
        "$tap_tmp/jobs/show.sh" "$tap_tmp/jobs/any.yaml")
    wait_for_job "$job" 'COMPLETED|FAILED'
    is "$(job_state "$job")" COMPLETED "$form: the batch job completes"
    is "$( (sed -n 1p "$tap_tmp/$form.out"; sed -n 2,5p "$tap_tmp/$form.out" | sort
        sed -n '6,$p' "$tap_tmp/$form.out"))" "$want" "$form: script, inherited step, off, own file"
    is "$(job_field "$job" Requeue)" 1 "$form: the job may be requeued"
done
job=$(timeout "$HANG_S" sbatch --parsable --hold -o /dev/null --no-requeue --accel-config=any.yaml --wrap true)
is "$(job_field "$job" Requeue)" 0 "--no-requeue on the command line wins"
scancel "$job"
printf '#!/bin/sh\n#SBATCH --no-requeue\ntrue\n' >no.sh
job=$(timeout "$HANG_S" sbatch --parsable --hold -o /dev/null --accel-config=any.yaml no.sh)
is "$(job_field "$job" Requeue)" 0 "so does #SBATCH --no-requeue"
scancel "$job"

# A config that was changed under way is refused in the task, and the node stays well.
if command -v cc >/dev/null 2>&1; then
    cat >tamper.c <<'TAMPER'
#include <slurm/spank.h>
#include <stdlib.h>
SPANK_PLUGIN(tamper, 1)
int slurm_spank_local_user_init(spank_t sp, int ac, char **av)
{
    return sp && av && ac < 0 ? -1
                              : setenv("SLURM_ACCEL_ENVIRONMENT",
                                       "accelenv1;RANK=1;xxh3=0123456789abcdef", 1);
}
TAMPER
    passes "another plugin that changes the variable" cc -shared -fPIC -o tamper.so tamper.c
    cp "$cluster_plugstack" plugstack.keep
    echo "required $tap_tmp/jobs/tamper.so" >>"$cluster_plugstack"
    run_srun -n1 --accel-config=any.yaml echo ran
    cp plugstack.keep "$cluster_plugstack"
    is "$srun_rc" 1 "a damaged config fails the step with 1"
    like "$srun_out" 'error\[A0311\]: .*environment .* damaged' "the message says what is damaged"
    unlike "$srun_out" '^ran' "the program did not run"
else
    skip 4 "no C compiler"
fi

# The config reaches the tasks whatever is exported, and nothing else does.
report='echo "$RANK/$WORLD_SIZE $ACCEL_RANK $ACCELERATE_MIXED_PRECISION ${MINE-none} ${OTHER-none}"
case $ACCEL_CONFIG_RESOLVED in accel1*) echo resolved ;; esac
[ -z "${SLURM_ACCEL_ENVIRONMENT-}" ] || echo "the carrier is left"'
MINE=1 OTHER=2
export MINE OTHER
for form in 'NONE 0/1 0 no none none' 'MINE 0/1 0 no 1 none' 'MINE=3,OTHER 0/1 0 no 3 2' \
    'ALL 0/1 0 no 1 2' 'ACCELERATE_MIXED_PRECISION=fp16,MINE 0/1 0 fp16 1 none'; do
    run_srun -Q --export="${form%% *}" -n1 --accel-config=any.yaml /bin/sh -c "$report"
    is "$(printf '%s\n' "$srun_out" | grep -v '^srun: accel: kept')" "${form#* }
resolved" "--export=${form%% *}"
done
run_srun --export=ACCELERATE_MIXED_PRECISION=fp16 -n1 --accel-config=any.yaml /bin/true
like "$srun_out" 'kept from your environment: ACCELERATE_MIXED_PRECISION=fp16 \(the config says no\)' \
    "a value of --export that contradicts the config is named"
RANK=5 SLURM_EXPORT_ENV=NONE run_srun -Q -n1 --accel-config=any.yaml /bin/sh -c "$report"
is "$srun_out" "0/1 0 no none none
resolved" "what is not exported is not kept, and nothing says so"
if built_with_sanitizer; then
    skip 1 "--export=NONE keeps the sanitizer runtime from the job's own srun"
else
    cat >none.sh <<JOB
#!/bin/sh
#SBATCH --export=NONE --accel-config=any.yaml -n2
srun -Q -l /bin/sh -c '$report'
JOB
    job=$(timeout "$HANG_S" sbatch --parsable -o "$tap_tmp/none.out" none.sh)
    wait_for_job "$job" 'COMPLETED|FAILED'
    is "$(sort "$tap_tmp/none.out")" "0: 0/2 0 no none none
0: resolved
1: 1/2 1 no none none
1: resolved" "#SBATCH --export=NONE: all of it arrives"
fi
unset MINE OTHER
no_node_drained
ok $? "no node is drained"

# Not used: the environment is what it is without the plugin.
timeout "$HANG_S" srun -w n1 -n1 env 2>err | grep -vE '^(SLURM_(JOB|STEP|SRUN|TASK|LAUNCH|PRIO|GTIDS|TOPOLOGY)|_=|SLURM_JOBID|SLURMD)' | sort >with
is "$(grep -v '^srun: job' err)" "" "not used: nothing is printed"
grep -v '^ACCEL_\(SRC\|BUILD\|ASAN_BUILD\|CLUSTER_DIR\)=' with | grep -iE '^[^=]*(accel|spank|rank=|master_)'
isnt $? 0 "not used: no variable is set"
for file in "$cluster_dir"/etc/*plugstack*; do : >"$file"; done
timeout "$HANG_S" srun -w n1 -n1 env | grep -vE '^(SLURM_(JOB|STEP|SRUN|TASK|LAUNCH|PRIO|GTIDS|TOPOLOGY)|_=|SLURM_JOBID|SLURMD)' | sort >without
is "$(cat with)" "$(cat without)" "not used: the same environment as without the plugin"
done_testing
