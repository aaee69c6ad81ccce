#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# A lack of memory at each place of each command that asks for some: the command says so and
# ends with an error, or prints what it prints with memory. Never half of it with exit 0, never
# an error without a word, never a crash. What writes files is run again for each place.
# shellcheck source=tests/t/tap.sh
. "$(dirname "$0")/tap.sh"

shim=$ACCEL_BUILD/tests/faults/.libs/nomem.so
[ -f "$shim" ] || skip_all "no shim (shared libraries are off)"
! built_with_sanitizer || skip_all "sanitizers and LD_PRELOAD exclude each other"
tap_tmpdir
cd "$tap_tmp" || bail_out "no directory"
accel=$ACCEL_BUILD/accel data=$ACCEL_SRC/tests/data
CUDA_VISIBLE_DEVICES='' OMP_NUM_THREADS=1
export CUDA_VISIBLE_DEVICES OMP_NUM_THREADS
unset ACCEL_CONFIG ACCEL_CONFIG_RESOLVED ACCEL_RESUME SLURM_JOB_ID SLURM_PROCID SLURM_STEP_ID
cp -r "$data/checkpoint-0.1/checkpoints" run
printf 'distributed_type: FSDP\nmixed_precision: bf16\n' >one.yaml
printf 'distributed_typ: FSDP\nmixed_precision: 3\n' >bad.yaml
printf '{"fp16": {"enabled": true}, "zero_optimization": {"stage": 2}}\n' >ds.json
printf 'distributed_type: DEEPSPEED\ndeepspeed_config: {deepspeed_config_file: ds.json}\n' >ds.yaml
printf 'accel: {checkpoint: {keep: 3}}\n' >site.yaml
printf 'distributed_type: FSDP\nfp16: true\n' >old.yaml

# What may be missing without a word: why a checkpoint is kept, and what Slurm answers. Ports differ
# from run to run.
plain() {
    sed -e 's/no rule is noted\|cannot be read//' -e '/^kept /d' -e '/"kept"/d' -e '/^MASTER_PORT=/d' -e '/^slurm /d' \
        -e '/"slurm"/d' -e 's/KEPT *//' -e 's/ *$//' "$1"
}
# Is it an answer: an error that is told (by verify in its table), or the same as with memory?
answers() { # STATUS OUT ERR
    if [ "$1" -ge 64 ] && [ "$1" -le 78 ]; then
        [ ! -s "$3" ] && ! grep -q 'unreadable .*memory' "$2" || return 0
    fi
    [ "$1" = "$rc" ] && [ "$(plain "$2")" = "$(plain out)" ] && cmp -s "$3" err
}

while IFS='|' read -r program command; do
    rm -rf places
    mkdir places
    # shellcheck disable=SC2086 # a list of words
    "$accel" $command >out 2>err </dev/null
    rc=$?
    # shellcheck disable=SC2086
    NOMEM_PROGRAM=$program NOMEM_DIR=places LD_PRELOAD=$shim timeout "$HANG_S" "$accel" $command \
        >all.out 2>all.err </dev/null
    silent=
    for place in places/*.rc; do
        answers "$(cat "$place")" "${place%rc}out" "${place%rc}err" || {
            silent=$place
            diag "$command: exit $(cat "$place") at ${place##*/}: $(diff out "${place%rc}out" | head -n 5)"
        }
    done
    is "$silent" "" "$command: $(find places -name '*.rc' | wc -l) places"
done <<END
accel|check one.yaml --site site.yaml
accel|check one.yaml --json
accel|check bad.yaml
accel|check ds.yaml
accel|check none.yaml
accel|check --keys --json
accel|check --qiet
accel|plan one.yaml --ranks 2 --threads 1 --json
accel|plan one.yaml --gpus 2 --gpu-memory 80 --threads 1 --compare
accel|launch --dry-run --config one.yaml -n 2 sh
accel|ckpt ls run
accel|ckpt show run
accel|ckpt show run --json
accel|ckpt diff run $data/checkpoint-forms/one-file
accel-verify|ckpt verify run
accel|explain
accel|explain A0303 --json
accel|env --json
accel|topo -x $data/topo/nvswitch8.xml -l 8
accel|topo -x $data/topo/numa2-core4-pu2.xml --json
accel|schema
accel|completion bash
accel|man 5
END

# ---- commands that write: after a failure nothing new is there, or all of it ----
while IFS='|' read -r program command written; do
    # shellcheck disable=SC2086
    "$accel" $command >out 2>err </dev/null
    rc=$?
    mv "$written" whole
    rm -f count old.yaml.bak
    printf 'distributed_type: FSDP\nfp16: true\n' >old.yaml
    # shellcheck disable=SC2086
    NOMEM_PROGRAM=$program NOMEM_COUNT=count LD_PRELOAD=$shim "$accel" $command >all.out 2>all.err </dev/null
    places=$(wc -c <count) silent='' n=0
    while [ $n -lt "$places" ]; do
        n=$((n + 1))
        rm -rf "$written" old.yaml.bak
        printf 'distributed_type: FSDP\nfp16: true\n' >old.yaml
        # shellcheck disable=SC2086
        NOMEM_PROGRAM=$program NOMEM_AT=$n LD_PRELOAD=$shim timeout "$HANG_S" "$accel" $command \
            >place.out 2>place.err </dev/null
        status=$?
        if answers $status place.out place.err; then
            [ $status != 0 ] || diff -r whole "$written" >/dev/null && continue
        fi
        silent="$silent $n"
        diag "$command: exit $status at $n: $(diff out place.out | head -n 5)"
    done
    is "$silent" "" "$command: $places places"
    rm -rf whole "$written"
done <<END
accel|config update old.yaml|old.yaml.bak
accel|config default --config-file new.yaml|new.yaml
accel|to-fsdp2 --config-file one.yaml --output-file two.yaml|two.yaml
accel|ckpt export run weights|weights
accel|tokenize -t $data/tokenizer/gpt2.json -o tokens.bin one.yaml|tokens.bin
END
done_testing
