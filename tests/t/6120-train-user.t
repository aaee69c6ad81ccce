#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The main job as an ordinary user, on a cluster that this user started: a batch job is
# preempted, comes back and completes; a bare srun trains. Started by root, the test
# becomes user 65534; started by anybody else it is that user.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/t/train.sh
. "$(dirname "$0")/train.sh"
need_plugin
plugin=$ACCEL_BUILD/srun_plugin/.libs/accel_spank.so
tap_tmpdir
mkdir "$tap_tmp/scripts" "$tap_tmp/user"
# The source tree may be closed to other users.
cp "$accel_cluster" "$ACCEL_SRC"/scripts/cluster-*.sh "$tap_tmp/scripts"
train_text "$tap_tmp/text.txt"
train_config "$tap_tmp/fsdp.yaml" FULL_SHARD bf16 2 1
chmod -R a+rX "$tap_tmp"
as_user=
if [ "$(id -u)" = 0 ]; then
    need_program setpriv
    id -un 65534 >/dev/null 2>&1 || skip_all "no name for user id 65534"
    as_user='setpriv --reuid=65534 --regid=65534 --clear-groups'
    chown 65534 "$tap_tmp/user"
    # shellcheck disable=SC2016 # for the inner shell
    $as_user sh -c '"$1" --help >/dev/null 2>&1 && [ -r "$2" ]' sh "$TRAIN" "$plugin" ||
        skip_all "the build tree is closed to other users"
fi
cd "$tap_tmp/user" || bail_out "no home"

cat >"$tap_tmp/job.sh" <<JOB
#!/bin/sh
#SBATCH --accel-config=$tap_tmp/fsdp.yaml -o $tap_tmp/user/job.out
srun $TRAIN --layers 2 --heads 4 --width 64 --seq 64 --batch 8 --steps 400 --sample 0 \
    --data $tap_tmp/text.txt --out $tap_tmp/user/job
JOB
# What the user does; each result is one line.
cat >"$tap_tmp/session.sh" <<'SESSION'
cd "$1/user" || exit 1
timeout "$HANG_S" srun --accel-config="$1/fsdp.yaml" "$2" --layers 1 --heads 2 --width 32 --seq 32 --batch 2 \
    --steps 20 --sample 0 --data "$1/text.txt" --out bare >bare.out 2>&1
echo "bare srun: $?"
job=$(sbatch --parsable "$1/job.sh")
tries=0
until [ -f job/log.jsonl ] && [ "$(wc -l <job/log.jsonl)" -ge 40 ] || [ $((tries += 1)) -gt $((HANG_S * 10)) ]; do
    sleep 0.1
done
sbatch -Q -p high --exclusive -o /dev/null --wrap true
tries=0
until scontrol -o show job "$job" | grep -qE 'JobState=(COMPLETED|FAILED|CANCELLED)' || [ $((tries += 1)) -gt $((HANG_S * 5)) ]; do
    sleep 0.2
done
scontrol -o show job "$job" | tr ' ' '\n' | grep -E '^(JobState|Restarts|NumTasks)=' | sort
SESSION
chmod 755 "$tap_tmp/session.sh" "$tap_tmp/job.sh"
dir=$tap_tmp/user/c
at_exit user_cluster_down
user_cluster_down() {
    [ ! -d "$dir" ] || $as_user "$tap_tmp/scripts/accel-cluster" down --dir "$dir" >/dev/null 2>&1
}
out=$(HOME=$tap_tmp/user $as_user timeout "$HANG_S" "$tap_tmp/scripts/accel-cluster" run --nodes 1 \
    --grace 20 --plugin "$plugin" --dir "$dir" sh "$tap_tmp/session.sh" "$tap_tmp" "$TRAIN" 2>&1)
is "$out" "$(printf 'bare srun: 0\nJobState=COMPLETED\nNumTasks=2\nRestarts=1')" \
    "bare srun trains; the batch job is preempted, comes back and completes" ||
    diag "$(cat bare.out job.out 2>&1)"
each_step_once bare/log.jsonl 20
ok $? "bare srun: every step once"
each_step_once job/log.jsonl 400
ok $? "batch job: every step once"
like "$(cat job.out)" '; the state of step [0-9]+ is saved' "batch job: stopped in the middle"
like "$(cat job.out)" 'resumed from ' "batch job: went on"
is "$(find "$tap_tmp/user/job" ! -user "$($as_user id -u)" | head -n 3)" "" "all files are the user's"
cluster_gone "$dir"
ok $? "nothing is left of the cluster"
done_testing
