#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# A script that knows nothing of accel is never worse off with --accel-config than under plain
# srun: preempted again and again, it comes back at least as often, ends in the same way, and is
# told what accel knows. Each row runs with accel and without, on nodes of its own.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"
need_plugin
need_program python3
tap_tmpdir
cd "$tap_tmp" || bail_out "no directory"
printf 'distributed_type: "NO"\nuse_cpu: true\n' >one.yaml
NODES=20

# A line for each life; the one after the last preemption is done at once.
cat >train.py <<'TRAIN'
import os, signal, sys, time

name, at_sigterm, most = sys.argv[1:]
if os.environ.get("SLURM_ARRAY_TASK_ID") == "1":
    name, most = name + ".other", 0

def end(*_):
    os._exit(int(at_sigterm))

if at_sigterm == "ignores":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
elif at_sigterm != "dies":
    signal.signal(signal.SIGTERM, end)
with open(name + ".lives", "a+") as lives:
    print("life", file=lives, flush=True)
    lives.seek(0)
    if len(lives.readlines()) > int(most):
        sys.exit(0)
while True:
    time.sleep(0.05)
TRAIN
cat >job.sh <<'JOB'
#!/bin/sh
srun python3 train.py "$@"
JOB

lives() { # NAME
    if [ -e "$1.lives" ]; then wc -l <"$1.lives"; else echo 0; fi
}
# shellcheck disable=SC2317 # called by wait_until
lives_or_ended() { # NAME LIVES
    [ "$(lives "$1")" -ge "$2" ] || ended "$1"
}
# Has the job come to its end, which no life follows?
ended() { # NAME
    if [ -n "$job" ]; then
        _job_is "$job" 'COMPLETED|FAILED|CANCELLED|PREEMPTED|TIMEOUT|NODE_FAIL'
    else
        ! kill -0 "$srun" 2>/dev/null
    fi
}
high() { # NODE
    timeout "$HANG_S" srun -Q -p high -w "$1" -n1 --exclusive --accel-config=none true >/dev/null 2>&1
}
# Runs it. How many lives it has, and how the last one ended: into NAME.end
one() { # NAME NODE FORM PARTITION AT-SIGTERM CONFIG [OPTION]
    name=$1 node=$2 form=$3 sigterm=$5 job='' srun=
    most=2 # preemptions; Slurm looks for the end of a grace time only twice a minute
    [ "$sigterm" != ignores ] || most=1
    slurm="-p $4 -w $2 -n1 -J $1 --accel-config=$6 ${7:-}"
    # shellcheck disable=SC2086
    if [ "$form" = bare ]; then
        timeout "$HANG_S" srun $slurm python3 train.py "$name" "$sigterm" $most >"$name.out" 2>&1 </dev/null &
        srun=$!
    else
        job=$(timeout "$HANG_S" sbatch --parsable $slurm -o "$name.out" --open-mode=append \
            job.sh "$name" "$sigterm" $most)
        case $slurm in
            *--array=*) # element 1 shares the node: its end is not to be one after a notice
                wait_for_job "${job}_1" COMPLETED
                job=${job}_7
                ;;
        esac
    fi
    life=1
    while [ $life -le $((most + 1)) ]; do
        wait_until lives_or_ended "$name" $life
        [ "$(lives "$name")" -ge $life ] || break
        [ $life -gt $most ] || high "$node"
        life=$((life + 1))
    done
    if [ "$form" = bare ]; then
        wait "$srun"
        code=$?
    else
        wait_until ended "$name"
        code="$(job_state "$job") $(job_field "$job" ExitCode)"
    fi
    echo "$(lives "$name") $code" >"$name.end"
}

# Runs a row with accel and without. PLAIN and ACCEL: lives, and how the last one ended; LINE: what
# accel says. Without a grace time it may be killed before it has said a word: then '' is LINE.
rows=0 names=
row() { # NAME FORM PARTITION AT-SIGTERM PLAIN ACCEL LINE [OPTION]
    names="$names $1"
    printf '%s\n' "$5" >"$1.plain.want"
    printf '%s\n' "$6" >"$1.accel.want"
    printf '%s\n' "$7" >"$1.line"
    one "$1.plain" n$((rows * 2 + 1)) "$2" "$3" "$4" none "${8:-}" &
    one "$1.accel" n$((rows * 2 + 2)) "$2" "$3" "$4" one.yaml "${8:-}" &
    rows=$(((rows + 1) % (NODES / 2)))
    [ $rows != 0 ] || wait
}
finish_rows() {
    wait
    for name in $names; do
        like "$(cat "$name.plain.end")" "^($(cat "$name.plain.want"))\$" "$name: plain srun: $(cat "$name.plain.want")"
        like "$(cat "$name.accel.end")" "^($(cat "$name.accel.want"))\$" "$name: with accel: $(cat "$name.accel.want")" ||
            diag "$(cat "$name.accel.out")"
        said=$(grep 'accel: ' "$name.accel.out")
        line=$(cat "$name.line")
        [ -z "$line" ] || like "$said" "$line" "$name: it is told"
        [ "$(lives "$name.accel")" = 1 ] ||
            unlike "$said" 'counts as finished|can resume from|not re(queued|started)' "$name: and nothing wrong"
    done
    rows=0 names=
    no_node_drained
    ok $? "no node is drained"
}
up() { # NOTICE
    cluster_up --nodes $NODES --cpus 2 --mode plain --kill-wait 2 --notice "$1"
    for partition in grace:120 short:2 none:0; do
        timeout "$HANG_S" scontrol create PartitionName="${partition%:*}" Nodes=ALL PriorityTier=1 \
            GraceTime="${partition#*:}" PreemptMode=REQUEUE >/dev/null || bail_out "no partition"
    done
}

done='COMPLETED 0:0'
unknown='preempted with exit code [0-9]+; accel knows of no checkpoint of this attempt'
finished='ended with exit code 0 after the notice of a preemption: it counts as finished'
up term
row batch-ignores batch short ignores "2 $done" "2 $done" ''
row bare-ignores bare short ignores '1 .*' '2 0' "$unknown"
row batch-dies batch grace dies '1 FAILED 143:0' "3 $done" "$unknown"
row batch-0 batch grace 0 "1 $done" "1 $done" "$finished"
row batch-1 batch grace 1 '1 FAILED 1:0' "3 $done" "$unknown"
row bare-dies bare grace dies '1 143' '3 0' "$unknown"
row bare-0 bare grace 0 '1 0' '1 0' "$finished"
row bare-1 bare grace 1 '1 1' '3 0' "$unknown"
row array batch grace dies '1 FAILED 143:0' "3 $done" "$unknown" --array=1,7
row no-requeue batch grace dies '1 FAILED 143:0' '1 FAILED 143:0' \
    'not requeued: it was submitted with --no-requeue' --no-requeue
row batch-dies-none batch none dies "3 $done" "3 $done" ''
row batch-0-none batch none 0 "3 $done" "3 $done" ''
row batch-1-none batch none 1 "3 $done" "3 $done" ''
row bare-dies-none bare none dies '1 .*' '3 0' "$unknown"
row bare-0-none bare none 0 '1 .*' '3 0' "$unknown"
row no-requeue-none batch none dies '1 PREEMPTED .*' '1 PREEMPTED .*' '' --no-requeue
finish_rows
is "$(cat array.accel.other.lives)" life "the other element of the array has one life"
cluster_down
# A site that sends a preempted job the signal that it has asked for, as accel does.
up user
row own-signal batch grace 0 "1 $done" "1 $done" "$finished" --signal=TERM@60
finish_rows
done_testing
