#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Few descriptors, from those that a program needs to start up to those that a command needs: it
# says what it cannot open, with an error or in its table, or prints what it prints with many.
# Never half of it with exit 0, never an error without a word, never a crash; and what cannot be
# opened now is not damaged.
# shellcheck source=tests/t/tap.sh
. "$(dirname "$0")/tap.sh"

tap_tmpdir
cd "$tap_tmp" || bail_out "no directory"
accel=$ACCEL_BUILD/accel data=$ACCEL_SRC/tests/data
CUDA_VISIBLE_DEVICES='' OMP_NUM_THREADS=1
export CUDA_VISIBLE_DEVICES OMP_NUM_THREADS
unset ACCEL_CONFIG ACCEL_CONFIG_RESOLVED ACCEL_RESUME SLURM_JOB_ID SLURM_PROCID SLURM_STEP_ID
cp -r "$data/checkpoint-0.1/checkpoints" run
printf 'distributed_type: FSDP\nmixed_precision: bf16\n' >one.yaml
printf 'accel: {checkpoint: {keep: 3}}\n' >site.yaml
printf '{"fp16": {"enabled": true}, "zero_optimization": {"stage": 2}}\n' >ds.json
printf 'distributed_type: DEEPSPEED\ndeepspeed_config: {deepspeed_config_file: ds.json}\n' >ds.yaml
printf 'some text of a few words, twice\nsome text of a few words, twice\n' >text

few() { # N CMD...: at most N descriptors
    sh -c 'ulimit -n "$0" && exec "$@"' "$@"
}
# Ports and free space differ from run to run; why a checkpoint is kept may be missing.
plain() {
    sed -e '/^MASTER_PORT=/d' -e '/^kept /d' -e 's/[0-9.]* [A-Z]*i*B free/N free/' "$1"
}
# Is it an answer: an error that is told, by tables in a cell, or the same as with many?
answers() { # STATUS
    if grep -q 'damaged' few.out few.err; then return 1; fi
    if grep -q 'Too many open files' few.out; then return 0; fi
    [ "$1" -lt 64 ] || [ "$1" -gt 78 ] || [ ! -s few.err ] || return 0
    [ "$1" = $rc ] && [ "$(plain few.out)" = "$(plain out)" ] && cmp -s few.err err
}

least=3
while [ $least -lt 20 ] && ! few $least "$accel" --version >out 2>err; do least=$((least + 1)); done
[ $least -lt 12 ]
ok $? "a program starts with $least descriptors"

while read -r command; do
    rm -rf made made.bin
    # shellcheck disable=SC2086 # a list of words
    "$accel" $command >out 2>err </dev/null
    rc=$?
    wrong='' told=0 n=$least
    while [ $n -lt 16 ]; do
        rm -rf made made.bin
        # shellcheck disable=SC2086
        few $n "$accel" $command >few.out 2>few.err </dev/null
        status=$?
        if answers $status; then
            cmp -s out few.out || told=$((told + 1))
        else
            wrong="$wrong $n"
            diag "$n descriptors: $command: exit $status: $(cat few.err) $(diff out few.out | head -n 3)"
        fi
        n=$((n + 1))
    done
    is "$wrong" "" "$command: exit $rc, told with $told numbers of descriptors"
done <<END
check one.yaml --site site.yaml
check one.yaml --json
check ds.yaml
check none.yaml
plan one.yaml --ranks 2 --threads 1 --json
launch --dry-run --config one.yaml -n 2 sh
ckpt ls run
ckpt show run
ckpt diff run $data/checkpoint-forms/one-file
ckpt verify run
ckpt verify --deep run
tokenize -t $data/tokenizer/llama3.json -o made.bin text
ckpt export run made
config default --config-file made
explain A0303
topo -x $data/topo/nvswitch8.xml -l 8
topo -x $data/topo/numa2-core4-pu2.xml --json
doctor --json
schema
END
done_testing
