#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# A Trainer script as it is (examples/hf_trainer.py), two ranks under accel launch: stopped at a
# step and in an evaluation, by either signal to one rank only, with evaluations, data loader
# workers, JIT checkpoints and save_total_limit 1, it saves and resumes, also where the newest
# checkpoints are damaged. The last weights have the bits of a run that nobody stopped. Dropout
# is on: a random number more or less would show.
. "$(dirname "$0")/tap.sh"
. "$(dirname "$0")/peers.sh"

for part in accel .libs/libacceljob.so; do
    [ -x "$ACCEL_BUILD/$part" ] || skip_all "$part is not built"
done
built_with_sanitizer && skip_all "python has no sanitizer runtime"
tap_tmpdir
need_peers 'torch, accelerate, transformers'
PYTHONPATH=$ACCEL_SRC/python/site:$PYTHONPATH ACCEL_PYTHON_TRAINER=1
export PYTHONPATH ACCEL_PYTHON_TRAINER
unset ACCEL_RESUME
printf 'distributed_type: MULTI_CPU\nnum_processes: 2\nuse_cpu: true\n' >two.yaml

train() { # DIRECTORY TELL [OPTION]...: its output in DIRECTORY.out, its exit code in $rc
    dir=$1
    TELL=$2
    export TELL
    shift 2
    timeout -k 5 "$HANG_S" "$ACCEL_BUILD/accel" launch --config two.yaml --no_python \
        ${resume:+--resume $resume} "$python" \
        "$ACCEL_SRC/tests/data/python/told_trainer.py" "$ACCEL_SRC/examples/hf_trainer.py" \
        --output_dir "$dir" --max_steps 30 --per_device_train_batch_size 4 --use_cpu true \
        --report_to none --disable_tqdm true --learning_rate 1e-3 --logging_steps 10 \
        --eval_strategy steps --eval_steps 5 --save_steps 10 --save_total_limit 1 \
        --dataloader_num_workers 2 --enable_jit_checkpoint true "$@" >"$dir.out" 2>&1 </dev/null
    rc=$?
}
sum() { # FILE
    sha256sum <"$1" 2>&1
}
steps() { # DIRECTORY: of its checkpoints
    find "$1" -maxdepth 1 -name 'checkpoint-*' | sed 's/.*checkpoint-//' | sort -n | tr '\n' ' '
}

LATE=1
export LATE
train whole ''
unset LATE
is $rc 0 "a run that nobody stops, with a rank that is late to save" || diag "$(tail -n 20 whole.out)"
is "$(steps whole)" "20 30 " "save_total_limit 1 keeps the one before, too"
weights=$(sum whole/model.safetensors)

train stepped '1 on_step_end 11 TERM'
is $rc 85 "SIGTERM to one rank: it comes back" || diag "$(tail -n 20 stepped.out)"
step=$(steps stepped | awk '{ print $NF }')
case $step in 12 | 13) ok 0 "all ranks stop at one of the next two steps" ;;
*) ok 1 "all ranks stop at one of the next two steps, not at $step" ;;
esac
like "$(cat stepped.out)" "the state of step $step is saved in $tap_tmp/stepped" "and say which"
unlike "$(cat stepped.out)" 'JIT|loss [0-9]|a Trainer resumes' "nothing else saves, nothing after train() runs"
cp -r stepped damaged
train stepped ''
is $rc 0 "started again" || diag "$(tail -n 20 stepped.out)"
like "$(cat stepped.out)" "^accel: resuming from $tap_tmp/stepped/checkpoint-$step\$" "it resumes"
is "$(sum stepped/model.safetensors)" "$weights" "the same weights, bit for bit"

truncate -s 3 "damaged/checkpoint-$step/optimizer.pt"
cp -r damaged/checkpoint-10 damaged/checkpoint-25
rm damaged/checkpoint-25/accel.json
train damaged ''
is $rc 0 "with the newest two damaged" || diag "$(tail -n 20 damaged.out)"
like "$(cat damaged.out)" 'checkpoint-25 is not whole and is not used: it has no accel.json' \
    "one without its marker is skipped"
like "$(cat damaged.out)" "checkpoint-$step is not whole and is not used: optimizer.pt has 3 bytes" \
    "so is one that is cut short"
like "$(cat damaged.out)" 'resuming from .*/checkpoint-10$' "and the one before is taken"
is "$(sum damaged/model.safetensors)" "$weights" "the same weights, bit for bit"

train evaluated '0 on_prediction_step 15 USR1'
is $rc 85 "SIGUSR1 to one rank in an evaluation" || diag "$(tail -n 20 evaluated.out)"
is "$(steps evaluated | awk '{ print $NF }')" 15 "it saves at once"
like "$(cat evaluated/checkpoint-15/accel.json)" '"evaluate": true' "and notes the evaluation to come"
train evaluated '' --per_device_train_batch_size 8
is $rc 1 "another batch is refused"
like "$(cat evaluated.out)" 'by 2 ranks with batches of 4 and 1 per step; this run has 2 ranks with batches of 8' \
    "with both numbers"
train evaluated ''
is $rc 0 "started again" || diag "$(tail -n 20 evaluated.out)"
is "$(sum evaluated/model.safetensors)" "$weights" "the same weights, bit for bit"
count() { # DIRECTORY: evaluations of its last trainer_state.json
    grep -c '"eval_loss"' "$1/checkpoint-30/trainer_state.json"
}
is "$(count evaluated)" "$(count whole)" "and the same number of evaluations"

# Several trainings in one directory, and a Trainer that saves in a way of its own.
trainings() { # RESTART CASE [FOLD:STEP]: its output in $out, its exit code in $rc
    restart=$1
    shift
    out=$(ACCEL_RESTART_COUNT=$restart timeout -k 5 "$HANG_S" "$python" \
        "$ACCEL_SRC/tests/data/python/trainings.py" "$@" 2>&1 </dev/null)
    rc=$?
}
trainings 0 folds
is $rc 0 "three trainings in one directory" || diag "$out"
like "$out" '^accel: warning: this is train\(\) number 2 with output_dir .*/folds: .* an output_dir of its own' \
    "are told what that means"
want=$(echo "$out" | grep ^weights)
rm -r folds
trainings 0 folds 2:4
is $rc 85 "a stop in the second one: it comes back" || diag "$out"
like "$out" '^accel:   a Trainer resumes with --accel-resume=auto \(ACCEL_RESUME=auto without srun\)' \
    "by hand, without a launcher: it is said how"
trainings 1 folds
is "$rc $(echo "$out" | grep ^weights)" "0 $want" "and all three end as if nobody had stopped them" || diag "$out"
like "$out" '^accel: resuming from .*/checkpoint-6$' "the first one with its own checkpoint"
like "$out" '^accel: resuming from .*/checkpoint-[45]$' "the second one with its own"
rm -r folds
trainings 0 folds 3:6
is "$rc $(echo "$out" | grep ^weights)" "0 $want" "a signal at the last step of all changes nothing" || diag "$out"
trainings 0 adapters
is $rc 0 "a Trainer that saves in a way of its own goes on" || diag "$out"
is "$(echo "$out" | grep -c 'has no trainer_state.json: the script saves in a way of its own')" 1 "and is told, once"
like "$out" '^accel: warning: save_only_model leaves out the optimizer' "so is one without the optimizer"
trainings 0 adapters 1:2
is $rc 85 "a stop of it" || diag "$out"
like "$out" '^accel: stopped .*step [23] is not saved: the program did not save it' "and nothing counts as saved"
trainings 1 adapters
is $rc 0 "and the next attempt begins anew" || diag "$out"

# What transformers 4 asks for where the ranks are CPUs; this one no longer does.
"$python" -c 'import torch
from accel_slurm._training import _name_processor
_name_processor("cpu:1")
torch.save(torch.ones(2), "ones")
print(torch.load("ones", map_location="cpu:1"), torch.load("ones"))' >ones.out 2>&1
is "$(cat ones.out)" "tensor([1., 1.]) tensor([1., 1.])" "a checkpoint is read to cpu:1, which torch does not know"
done_testing
