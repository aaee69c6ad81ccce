#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Mended: after a good stop a program that ends with accel_report printed one error per rank, with
# "not a Slurm job" from all but rank 0.
# A run that was told to stop and is saved says so once, in two lines, and shows no error, on one
# rank and on two. Its exit code is that of the stop.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/../t/lib.sh"
# shellcheck source=tests/t/train.sh
. "$(dirname "$0")/../t/train.sh"
train_alone
BERT=$ACCEL_BUILD/examples/finetune_bert
[ -x "$BERT" ] || skip_all "examples/finetune_bert is not built"
need_program mpirun
train_pairs 200 pairs.tsv vocab.txt
train_config one.yaml NO_SHARD no 1 1 "checkpoint: {every_steps: 1000000000}"
train_config two.yaml NO_SHARD no 2 1 "checkpoint: {every_steps: 1000000000}"

stops() { # CONFIG SIGNAL CODE REASON NEXT PROGRAM...: the lines of its end
    out=$1.$2.$(basename "$6") sig=$2 code=$3 reason=$4 next=$5
    config=$1
    shift 5
    env --default-signal=INT "$ACCEL_BUILD/accel" launch --config "$config.yaml" "$@" --steps 100000000 \
        --out "$out" >"$out.out" 2>&1 </dev/null &
    pid=$!
    kill_at_exit $pid
    wait_for_step "$out/log.jsonl" 3 || diag "$(cat "$out.out")"
    kill -s "$sig" $pid
    wait $pid
    is $? "$code" "$out: ends $code" || diag "$(cat "$out.out")"
    is "$(grep -c 'stopped (' "$out.out")" 1 "$out: says so once"
    like "$(cat "$out.out")" "^accel: stopped \\($reason\\); the state of step [0-9]+ is saved in $out/checkpoints$" \
        "$out: what is saved"
    is "$(grep -A 1 'stopped (' "$out.out" | sed -n '2s/^accel:   //p')" "$next" "$out: what comes next"
    unlike "$(cat "$out.out")" 'error\[|cure:' "$out: shows no error" || diag "$(cat "$out.out")"
}

bert() { # CONFIG SIGNAL CODE REASON NEXT
    stops "$@" "$BERT" --data pairs.tsv --vocab vocab.txt --seq 12 --batch 1
}
again='not a Slurm job: run the command again to resume'
bert one TERM 85 signalled "$again"
bert two TERM 85 signalled "$again"
bert two INT 75 interrupted 'not restarted: the run was interrupted; run the same command to resume'
stops two TERM 85 signalled "$again" "$TRAIN" --layers 1 --heads 1 --width 16 --seq 16 --batch 1 --sample 0 \
    --data text.txt
done_testing
