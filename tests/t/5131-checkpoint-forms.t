#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Checkpoints of every stored form, which the first version that had them wrote (step 4 of 8 of
# two ranks, in tests/data/checkpoint-forms): one file with masters in bfloat16; flat shards with
# a loss scale and 8-bit moments; shards with scales of fp8, scaled float16 masters and
# 8-bit moments; moments in e4m3, from before their files said so; two models with three
# registered objects, in shards and in one file. This build verifies them, goes on from each at
# the same sample, and reaches the losses and the objects that were reached then.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/t/train.sh
. "$(dirname "$0")/train.sh"
accel=$ACCEL_BUILD/accel
[ -x "$TRAIN" ] || skip_all "examples/train is not built"
need_program mpirun
tap_tmpdir
cd "$tap_tmp" || bail_out "no directory"
unset SLURM_JOB_ID ACCEL_CONFIG_RESOLVED
OMP_NUM_THREADS=1
export OMP_NUM_THREADS
forms=$ACCEL_SRC/tests/data/checkpoint-forms

for config in "$forms"/*.yaml; do
    form=${config##*/} form=${form%.yaml}
    mkdir -p "$form/checkpoints"
    cp -R "$forms/$form/step_00000004" "$form/checkpoints"
    chmod -R u+w "$form"
    passes "$form: verifies" "$accel" ckpt verify --deep "$form/checkpoints"
    case $form in
    *several) samples=32 && set -- "$ACCEL_BUILD/tests/helpers/several" 8 "$form" ;;
    *) samples=16 && set -- "$TRAIN" --layers 1 --heads 1 --width 16 --seq 8 --batch 2 --sample 0 \
        --data "$ACCEL_SRC/tests/data/checkpoint-0.1/text.txt" --steps 8 --out "$form" ;;
    esac
    timeout "$HANG_S" "$accel" launch --config "$config" -n 2 "$@" >"$form.out" 2>&1
    is $? 0 "$form: a run goes on from it" || diag "$(cat "$form.out")"
    like "$(cat "$form.out")" "resumed from .*: step 4, $samples samples seen" "$form: at the exact sample"
    is "$(losses "$form/log.jsonl" | cut -d' ' -f1 | tr '\n' ' ')" "5 6 7 8 " "$form: the remaining steps"
    worst=$(worst_difference "$form/log.jsonl" "$forms/$form/log.jsonl")
    awk -v w="$worst" 'BEGIN { exit !(w != "none" && w + 0 <= 1e-3) }'
    ok $? "$form: the losses are those of then (relative difference at most $worst)"
done
for form in several one-file-several; do
    is "$(grep '^rank' $form.out | sort | tr '\n' ';')" "rank 0: 36, 36, 72;rank 1: 36, 396, 432;" \
        "$form: the objects of both ranks"
    is "$("$accel" ckpt show --json "$form/checkpoints/step_00000004" |
        jq -r '.tensors[].name | split("/") | .[0:2] | join("/")' | LC_ALL=C sort -u | tr '\n' ' ')" \
        "model/first model/second optim/first optim/second " "$form: both models"
done
is "$(for form in flat one-file shards msamp; do
    "$accel" ckpt show --json "$form/checkpoints/step_00000004" | jq -r '.tensors[] | .name + " " + .dtype'
done | sed -n 's,^\(model\|flat\|scale\|fp8\)/.* \(.*\),\1 \2,p; s,^optim/.*\.scale \(.*\),moments \1,p' | LC_ALL=C sort -u | tr '\n' ';')" \
    "flat float32;fp8 float32;model bfloat16;model float16;moments bfloat16;moments uint8;scale uint8;" "every form is there"
done_testing
