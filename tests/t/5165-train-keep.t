#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Which checkpoints a run keeps: the newest, multiples, the best by its evaluations, also
# those of an earlier life. `accel ckpt ls` and `show` say why, and prune does what the run
# noted, but not beside a run.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/t/train.sh
. "$(dirname "$0")/train.sh"
train_alone
accel=$ACCEL_BUILD/accel
MODEL="--layers 1 --heads 1 --width 8 --seq 8 --batch 2 --sample 0 --data text.txt"

# go STEPS KEYS: a life of the run in out/, whose log is said
go() {
    train_config one.yaml NO_SHARD no 1 1 "checkpoint: {every_steps: 2, $2}"
    # shellcheck disable=SC2086
    ACCEL_CONFIG=$tap_tmp/one.yaml timeout "$HANG_S" "$TRAIN" $MODEL --steps "$1" --eval-every 2 \
        --out out >said 2>&1
}
# The steps that are there, with a blank behind each.
steps() {
    (cd out/checkpoints && echo step_* | sed 's/step_0*//g;s/$/ /')
}
# code WANT DESCRIPTION COMMAND...: its exit status; its output is in $out
code() {
    code_want=$1 code_what=$2
    shift 2
    out=$("$@" 2>&1)
    is $? "$code_want" "$code_what" || diag "$out"
}

# The loss falls with every step, so that the largest values are the first ones.
go 12 "keep: 2, keep_every: 6, keep_best: 2, metric_mode: max"
is $? 0 "a run that keeps the two largest losses" || diag "$(cat said)"
is "$(steps)" "2 4 6 10 12 " "they stay, with multiples of 6 and the newest"
unlike "$(cat said)" 'keep_best' "and nothing is warned of"
code 0 "ls" "$accel" ckpt ls out/checkpoints
like "$out" '^step_00000012 .* newest 1 of 2, every 6 steps *$' "has two reasons for one"
like "$out" '^step_00000002 .* best 1 by eval_loss \([0-9.]+\) *$' "and the value of the best"
code 0 "show" "$accel" ckpt show out/checkpoints/step_00000006
like "$out" 'kept +every 6 steps' "has the reason of one"
like "$("$accel" ckpt show --json out/checkpoints/step_00000006)" '"kept": "every 6 steps"' "as JSON, too"

train_steps=$(steps)
cp -r out before
code 0 "a dry run with another rule" "$accel" ckpt prune out/checkpoints --every 0 --mode min --dry-run
like "$out" 'step_00000006 +would go' "says what would go"
like "$out" 'step_00000002 +would go' "without the largest"
is "$(steps)" "$train_steps" "and touches nothing"
code 64 "a metric is a word" "$accel" ckpt prune out/checkpoints --best 1 --metric "a b"
code 65 "in the config, too" env ACCEL_CHECKPOINT_METRIC="a b" "$accel" check one.yaml
exec 9<out/checkpoints/.lock
flock -n 9 || bail_out "no flock"
code 69 "prune beside a run" "$accel" ckpt prune out/checkpoints --every 0
like "$out" 'A0822.*another run is using this directory: ' "is refused, and names it"
code 69 "repair beside a run" "$accel" ckpt repair out/checkpoints
exec 9<&-
is "$(steps)" "$train_steps" "nothing is deleted"
code 0 "prune with a part of another rule" "$accel" ckpt prune out/checkpoints --every 0
is "$(steps)" "2 4 10 12 " "the rest of the rule is the run's"

rm -r out
mv before out
go 16 "keep: 2, keep_best: 2, metric_mode: max"
is $? 0 "a later life without multiples" || diag "$(cat said)"
is "$(steps)" "2 4 14 16 " "knows the values of the first one"

# The best is the first that was evaluated; what follows it is another history.
cp -R out before
export ACCEL_RESUME=best
go 16 "keep: 2, keep_best: 2, metric_mode: max"
is $? 0 "a life that goes back to the best" || diag "$(cat said)"
like "$(cat said)" 'resumed from out/checkpoints/step_00000002' "begins there"
like "$(cat said)" 'step_00000016 was moved aside to ' "and moves later ones aside"
is "$(cd out/checkpoints && echo step_????????)" \
    "step_00000002 step_00000004 step_00000014 step_00000016" "it saves them again"
diff out/log.jsonl before/log.jsonl | grep -q '"step":' && ! grep -q '"step":17' out/log.jsonl
ok $? "having trained them again"
rm out/checkpoints/retention
go 20 "keep: 2"
is $? 66 "without values none is the best"
like "$(cat said)" 'A0837.*no checkpoint has a value of' "which is said"
unset ACCEL_RESUME
done_testing
