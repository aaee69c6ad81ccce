#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Mended: a RequeueExit of the site queued the job of a bare srun once more, beside the new one.
# A site with RequeueExit=85: Slurm queues the ended job of a bare srun once more, beside the
# new one that the plugin asks for. Nobody waits for it: it is taken back at once, never runs,
# and the new one goes on. squeue is looked at all the time.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/../t/lib.sh"
need_plugin
tap_tmpdir
cd "$tap_tmp" || bail_out "no directory"
printf 'distributed_type: MULTI_CPU\nnum_processes: 1\n' >one.yaml
printf 'distributed_type: MULTI_CPU\nnum_processes: 1\naccel: {preemption: {resubmit: false}}\n' >stay.yaml
printf 'distributed_type: MULTI_CPU\nnum_processes: 1\naccel: {preemption: {enabled: false}}\n' >off.yaml
# The first life ends with 85, the second one runs for as long as squeue was looked at often.
cat >life.sh <<'LIFE'
[ "$ACCEL_RESTART_COUNT" != 0 ] || exit 85
: >"$1.second"
while ! [ -e "$1.enough" ]; do sleep 0.05; done
LIFE

# Every line: ID STATE. Ends when file NAME.stop is there.
watch_queue() { # NAME
    while ! [ -e "$1.stop" ]; do
        timeout "$HANG_S" squeue -h -o '%A %T' >>"$1.queue"
        echo - >>"$1.queue"
    done
}

looks_since() { # NAME FILE: how often squeue was looked at since FILE is there
    [ -e "$2" ] || return 1
    [ -e "$1.from" ] || wc -l <"$1.queue" >"$1.from"
    [ $(($(wc -l <"$1.queue") - $(cat "$1.from"))) -ge 40 ]
}

ran_again() { # NAME: ids that were seen RUNNING after another, later one had run
    awk '$2 == "RUNNING" { if ($1 + 0 < last) print $1; else last = $1 + 0 }' "$1.queue" | sort -u
}

cluster_up --nodes 2 --cpus 2 --set RequeueExit=85
watch_queue again &
watcher=$!
timeout "$HANG_S" srun --accel-config=one.yaml sh life.sh again >again.out 2>&1 &
pid=$!
wait_until looks_since again again.second
ok $? "srun asked for a new allocation, and it runs" || diag "$(cat again.out)"
first=$(sed -n 's/.*accel: job \([0-9]*\) stopped with.*/\1/p' again.out)
is "$(timeout "$HANG_S" squeue -h -o '%A')" "$((first + 1))" "beside it nothing is queued or runs"
is "$(ran_again again)" "" "the ended job never ran again"
is "$(job_state "$first")" CANCELLED "it was taken back"
: >again.enough
wait $pid
is $? 0 "srun ends 0"
: >again.stop
wait $watcher
unlike "$(cat again.out)" "accel: error" "without an error of accel" || diag "$(cat again.out)"

# Also where nothing is started again.
for name in stay off; do
    timeout "$HANG_S" srun --accel-config=$name.yaml sh -c 'exit 85' >$name.out 2>&1
    is $? 85 "$name: srun ends 85"
    is "$(timeout "$HANG_S" squeue -h -o '%A %T')" "" "$name: and nothing of it stays in the queue"
done

# A batch job is Slurm's to requeue, and a step in salloc is the user's.
# shellcheck disable=SC2016 # for the job's shell
printf '#!/bin/sh\n#SBATCH --accel-config=one.yaml -o batch.out\n[ "$SLURM_RESTART_COUNT" ] || exit 85\n' >batch.sh
job=$(timeout "$HANG_S" sbatch --parsable batch.sh)
wait_for_job "$job" COMPLETED
is "$(job_field "$job" Restarts)" 1 "a batch script that ends 85 is requeued by Slurm as before"
no_node_drained
ok $? "no node is drained"
done_testing
