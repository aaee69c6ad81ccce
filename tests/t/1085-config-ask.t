#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# accel config on a terminal: answers, Enter, wrong answers that are asked again, and that
# an end before the last answer (end of input, Ctrl-C) leaves the old file untouched.
# shellcheck source=tests/t/tap.sh
. "$(dirname "$0")/tap.sh"
command -v script >/dev/null 2>&1 || skip_all "script (bsdutils) is not installed"

tap_tmpdir
accel=$ACCEL_BUILD/accel
cd "$tap_tmp" || bail_out "no directory"

# Runs accel config on a pseudo-terminal; stdin is what is typed. Output in `out`, exit
# status in `code`: the last part of a pipe is a process of its own.
ask() { # ARG...
    timeout "$HANG_S" script -qec "'$accel' config $*" /dev/null >out 2>&1
    echo $? >code
}
# Enter for the rest.
enters() {
    n=0
    while [ $((n += 1)) -le 40 ]; do echo; done
}

# One process, a wrong word first, then a checkpoint directory with a blank in it.
{
    printf 'SINGLE\nNO\nyes\nmaybe\nbf16\n/scratch/my run\n15\n-1\n0\n'
    enters
} | ask --config-file one.yaml
is "$(cat code)" 0 "all questions answered"
contains "$(cat out)" "'distributed_type' cannot be 'SINGLE'" "a wrong word is told"
contains "$(cat out)" "'mixed_precision' cannot be 'maybe'" "and another"
contains "$(cat out)" "'every_steps' must be between 0 and" "and a value out of range"
is "$(grep -c 'one of NO, MULTI_CPU' out)" 1 "what a key takes is not repeated at each mistake"
is "$(grep -v '^#' one.yaml)" "distributed_type: 'NO'
mixed_precision: bf16
use_cpu: true
accel:
  checkpoint:
    dir: '/scratch/my run'
    every_steps: 0
    every_minutes: 15
    keep: 2
  preemption:
    enabled: true
    lead_seconds: 120" "the file says what was answered"
unlike "$(cat out)" 'num_machines|fsdp' "questions that do not matter are not asked"
passes "and is good" "$accel" check -q one.yaml

# FSDP: Enter takes the defaults; the question of the class only for that policy.
{
    printf '\n\n2\n3\n2\n\n1\n\nTRANSFORMER_BASED_WRAP\nGPT2Block\n'
    enters
} | ask --config-file two.yaml
is "$(cat code)" 0 "FSDP with Enter"
contains "$(cat out)" "num_processes (3) is not a multiple of num_machines (2)" "an answer is judged by those before it"
is "$(sed -n '/^distributed_type/p; /num_processes/p; /wrap/p' two.yaml)" "distributed_type: FSDP
num_processes: 2
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_transformer_layer_cls_to_wrap: GPT2Block" "answers and defaults"
contains "$(cat two.yaml)" "fsdp_backward_prefetch: BACKWARD_PRE" "version 1 gathers ahead"
passes "and is good" "$accel" check -q two.yaml

# Enter throughout: what most runs should have; examples/train takes it as it is.
enters | ask --config-file enter.yaml
is "$(cat code)" 0 "Enter throughout"
is "$(sed -n '/^distributed_type/p; /^use_cpu/p; /^num_/p; /fsdp_v/p; /wrap/p; /prefetch/p; /state_dict/p' enter.yaml)" \
    "distributed_type: FSDP
use_cpu: false
  fsdp_version: 2
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_state_dict_type: SHARDED_STATE_DICT" "gives version 2, a unit per block, and no size"
is "$("$accel" check -q enter.yaml 2>&1 >/dev/null)" "" "without a remark"
is "$(tr -d '\r' <out | grep -c '^[A-Z].*? ([a-z_.0-9]*)$')/$(tr -d '\r' <out | grep '([a-z_.0-9]*)$' | grep -v -c '?')" \
    "$(tr -d '\r' <out | grep -c '^  \[')/0" "each question is one"
like "$(cat out)" '^Should the run use CPUs only' "CPUs or GPUs are asked for"
if [ -x "$ACCEL_BUILD/examples/train" ]; then
    passes "examples/train runs with it" "$accel" launch --config enter.yaml -n 1 "$ACCEL_BUILD/examples/train" \
        --width 16 --layers 1 --heads 2 --seq 16 --sample 0 --steps 2 --data "$ACCEL_SRC/NEWS.md" --out "$tap_tmp/train"
    rm -rf train
else
    skip 1 "examples/train is not built"
fi
rm enter.yaml

# The old values are what Enter takes.
before=$(cat two.yaml)
enters | ask --config-file two.yaml
is "$(cat code)" 0 "asked again"
is "$(cat two.yaml)" "$before" "Enter keeps every value of the older file"
[ ! -e two.yaml.bak ]
ok $? "what stays the same needs no backup"
cp one.yaml three.yaml
{
    printf '\nfp16\n'
    enters
} | ask --config-file three.yaml
contains "$(cat out)" "three.yaml: written; the old file is three.yaml.bak" "an older file is kept, which is told"
passes "whole" cmp one.yaml three.yaml.bak
before3=$(cat three.yaml)
enters | ask --config-file three.yaml
is "$(cat code)" 73 "with an older backup in the way"
unlike "$(cat out)" "distributed_type \[|Enter takes" "nothing is asked"
contains "$(cat out)" "error[A0262]: three.yaml.bak" "the backup is named"
is "$(cat three.yaml)" "$before3" "and nothing is changed"
rm three.yaml three.yaml.bak

# ---- ends that change nothing ----
printf 'NO\n' | ask --config-file two.yaml
is "$(cat code)" 64 "the end of the input"
contains "$(cat out)" "nothing was written" "is told"
is "$(cat two.yaml)" "$before" "and the file is what it was"
{
    printf 'NO\n'
    printf '\003'
} | ask --config-file two.yaml
isnt "$(cat code)" 0 "Ctrl-C ends it"
is "$(cat two.yaml)" "$before" "and the file is what it was"
is "$(ls)" "code
one.yaml
out
two.yaml" "nothing else is left behind"
printf 'distributed_type: FSDP\nbogus: 1\n' >bad.yaml
enters | ask --config-file bad.yaml
is "$(cat code)/$(cat bad.yaml)" "65/distributed_type: FSDP
bogus: 1" "a file with a problem is not asked over"
done_testing
