#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# What Slurm does to a job that has to go, in all its cases: what the tasks see, who brings
# the job back, exactly once, and what becomes of it. One row of a table per case; rows run
# at the same time, each on a node of its own. doc/preemption.md explains the rows.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"
need_plugin
stepper=$ACCEL_BUILD/tests/helpers/stepper
[ -x "$stepper" ] || skip_all "tests/helpers/stepper is not built"
tap_tmpdir
cd "$tap_tmp" || bail_out "no directory"
printf 'distributed_type: MULTI_CPU\nnum_processes: 2\n' >two.yaml
cp two.yaml never.yaml
printf 'accel:\n  preemption:\n    max_restarts: 0\n' >>never.yaml
cp two.yaml off.yaml
printf 'accel:\n  preemption:\n    requeue: false\n' >>off.yaml
for pass in yes no; do
    cat >job-$pass.sh <<JOB
#!/bin/sh
srun "\$@"
code=\$?
[ $pass = no ] || exit \$code
JOB
done
NODES=8

has_steps() { # NAME
    [ -s "$1.steps" ] && [ "$(wc -l <"$1.steps")" -ge 3 ]
}

saw() { # NAME SIGNAL: rank 0 of the first life did
    grep -q "^0 0 $2\$" "$1.steps.signals" 2>/dev/null
}

saw_any() { # NAME
    grep -q '^0 0 [TU]' "$1.steps.signals" 2>/dev/null
}

has_ended() { # NAME
    if [ -n "$job" ]; then
        _job_is "$job" 'COMPLETED|FAILED|CANCELLED|PREEMPTED|TIMEOUT|NODE_FAIL'
    else
        [ -s "$1.rc" ]
    fi
}

high() { # NODE
    timeout 90 srun -p high -w "$1" -n1 --exclusive --accel-config=none true >/dev/null 2>&1
}

its_job() { # NAME: of a bare srun
    timeout 10 squeue -h -n "$1" -o %A | head -n 1
}

# Ctrl-C twice within a second: srun gives the step up.
press_ctrl_c() {
    kill -INT "$srun"
    sleep 0.3
    kill -INT "$srun"
}

stop_it() { # HOW NODE NAME
    case $1 in
    high) high "$2" ;;
    requeue) timeout 10 scontrol requeue "$job" ;;
    cancel) timeout 10 scancel "${job:-$(its_job "$3")}" ;;
    usr1) timeout 10 scancel -s USR1 "${job:-$(its_job "$3")}" ;;
    term) timeout 10 scancel -s TERM "${job:-$(its_job "$3")}" ;;
    step) timeout 10 scancel "${job:-$(its_job "$3")}.0" ;;
    ctrl-c) press_ctrl_c ;;
    grace-*) # something more, while it saves
        high "$2" &
        high_pid=$!
        wait_until 60 saw_any "$3"
        stop_it "${1#grace-}" "$2" "$3"
        wait $high_pid
        ;;
    esac
}

# Sets $job, or $srun for a bare one.
start_it() { # FORM NODE NAME PARTITION SLURM-OPTIONS STEPPER-ARGS
    form=${1%:*} config=two.yaml job='' srun=''
    [ "$form" = "$1" ] || config=${1#*:}.yaml
    # shellcheck disable=SC2086 # lists of options
    case $form in
    batch | batch0)
        pass=yes
        [ "$form" = batch ] || pass=no
        job=$(timeout 30 sbatch --parsable --accel-config="$config" -J "$3" -p "$4" -w "$2" -N1 -n2 \
            -o "$3.out" $5 "job-$pass.sh" "$stepper" "$3.steps" $6)
        ;;
    bare)
        # A child of an asynchronous list would ignore SIGINT.
        timeout 120 env --default-signal=INT srun --accel-config="$config" -J "$3" -p "$4" -w "$2" \
            -N1 $5 "$stepper" "$3.steps" $6 >"$3.out" 2>&1 </dev/null &
        srun_timeout=$!
        wait_until 60 has_steps "$3"
        srun=$(sed -n 's/.*(srun) .*//p; ' /dev/null)
        for p in $(cat "/proc/$srun_timeout/task/$srun_timeout/children"); do srun=$p; done
        { wait $srun_timeout; echo $? >"$3.rc"; } 2>/dev/null
        ;;
    esac
}
