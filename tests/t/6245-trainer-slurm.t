#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# A Trainer script as it is in a Slurm job that is preempted by SIGTERM, with one process and with
# two ranks, the key accel.python.trainer set and nothing else: it saves, is requeued, resumes, and
# its weights have the bits of a run that nobody stopped.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/peers.sh"
need_plugin
tap_tmpdir
need_peers 'torch, accelerate, transformers'
unset ACCEL_RESUME ACCEL_PYTHON_TRAINER
cluster_up --nodes 1 --notice term --grace 300

cat >one.yaml <<'END'
distributed_type: "NO"
use_cpu: true
accel: {python: {trainer: true}}
END
cat >two.yaml <<'END'
distributed_type: MULTI_CPU
num_processes: 2
use_cpu: true
accel: {python: {trainer: true}}
END
script="$ACCEL_SRC/examples/hf_trainer.py --use_cpu true --report_to none --disable_tqdm true \
--per_device_train_batch_size 4 --learning_rate 1e-3 --logging_steps 1 --save_steps 1000"

run_batch() { # NAME TASKS CONFIG STEPS: submits it; its number in $job
    cat >"$1.sh" <<END
#!/bin/sh
srun --accel-config=$3.yaml -n $2 $python $script --output_dir $1 --max_steps $4
END
    job=$(timeout "$HANG_S" sbatch --parsable --requeue --open-mode=append -n "$2" -o "$1.out" "$1.sh") ||
        bail_out "sbatch failed"
}
has_logged() { # FILE: the training is on its way
    grep -c "'loss'" "$1" 2>/dev/null | grep -q -v -x '[012]'
}
weights() { # NAME
    sha256sum <"$1/model.safetensors" 2>&1
}

for tasks in 1 2; do
    config=one
    [ $tasks = 1 ] || config=two
    run_batch "whole$tasks" $tasks $config 200
    wait_for_job "$job" 'COMPLETED|FAILED|CANCELLED|TIMEOUT'
    is "$(job_state "$job")" COMPLETED "$tasks: undisturbed" || diag "$(tail -n 20 whole$tasks.out)"

    run_batch "cut$tasks" $tasks $config 200
    wait_until has_logged "cut$tasks.out"
    high=$(timeout "$HANG_S" sbatch --parsable -p high --exclusive -o /dev/null --wrap true)
    wait_for_job "$high" COMPLETED
    ok $? "$tasks: a job of higher priority had the node in between"
    wait_for_job "$job" 'COMPLETED|FAILED|CANCELLED|TIMEOUT'
    is "$(job_state "$job")" COMPLETED "$tasks: told to stop, and comes back" ||
        diag "$(tail -n 40 cut$tasks.out)"
    is "$(job_field "$job" Restarts)" 1 "$tasks: requeued once"
    like "$(cat "cut$tasks.out")" 'the state of step [0-9]+ is saved' "$tasks: all ranks saved one step"
    like "$(cat "cut$tasks.out")" 'accel: resuming from .*/checkpoint-[0-9]+$' "$tasks: and resumed from it"
    unlike "$(cat "cut$tasks.out")" 'no Trainer reported' "$tasks: and srun knows of it"
    is "$(weights "cut$tasks")" "$(weights "whole$tasks")" "$tasks: the same weights, bit for bit"
done
done_testing
