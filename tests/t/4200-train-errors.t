#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# What goes wrong around a run: wrong arguments, outputs that cannot be written, damaged
# and foreign checkpoints, ranks that differ, signals. Each has its exit code and one clear
# text, and nothing of an older run is lost. One process, and two by accel launch.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/train.sh"
tap_tmpdir
cd "$tap_tmp" || bail_out "cannot enter $tap_tmp"
train_text text.txt
unset ACCEL_CONFIG ACCEL_CONFIG_RESOLVED CUDA_VISIBLE_DEVICES
OMP_NUM_THREADS=1
export OMP_NUM_THREADS
set -- --data text.txt --layers 1 --heads 2 --width 16 --seq 16 --batch 2 --sample 0 --steps 6

# one STATUS ERE DESCRIPTION [ARG]...: the trainer as one process
one() {
    one_rc=$1 one_re=$2 one_what=$3
    shift 3
    one_out=$(timeout "$HANG_S" "$TRAIN" "$@" 2>&1)
    is $? "$one_rc" "$one_what: exit $one_rc"
    like "$one_out" "$one_re" "$one_what: the text"
}

one 64 'width 16 is not a multiple of 3 heads' 'heads' "$@" --heads 3
one 64 'a sample of 999999 needs 1000000' 'sequence longer than the data' "$@" --seq 999999
one 64 -- '--vocab 10, but the data has 256' "$@" --vocab 10
one 64 'micro-batch of 1000000 samples.* is too large' 'batch' "$@" --batch 1000000 --seq 2000
one 71 'the plan needs .* but this node has' 'memory' "$@" --batch 100000 --layers 500 --seq 2000
one 64 "'adam' is not adamw, sgd or lion" 'optimizer' "$@" --optimizer adam
one 0 'step 1/6 .* lr 1.0e-04' 'lion with its own rate' "$@" --optimizer lion --warmup 1 --out lion
like "$one_out" '^ +lion momentum' "and its own state"
one 0 'step 1/6 .* lr 1.0e-02' 'sgd with its own rate' "$@" --optimizer sgd --warmup 1 --out sgd
like "$one_out" '^ +momentum' "and its own state"
one 66 'missing.txt: cannot open' 'no data' "$@" --data missing.txt
: >empty
one 64 'empty: 0 tokens' 'empty data' "$@" --data empty
one 73 'empty: cannot create or write the output directory: Not a directory' \
    'output is a file' "$@" --out empty
one 1 'the training has diverged' 'divergence' "$@" --steps 100 --lr 1e3 --clip 0 --out nan
CUDA_VISIBLE_DEVICES=0
export CUDA_VISIBLE_DEVICES
one 69 'use_cpu: true in the config' 'a GPU' "$@"
unset CUDA_VISIBLE_DEVICES

one 0 'step 6/6' 'a run' "$@" --out run
one 0 'the run is complete: all 6 steps' 'the same again' "$@" --out run
one 0 'resuming with steps = 9 \(the checkpoint had 6\)' 'more steps' "$@" --out run --steps 9
passes "each step stands in the log once" each_step_once run/log.jsonl 9
one 65 'checkpoint seed=1, this run seed=7' 'another run' "$@" --out run --seed 7
passes "the log of the refused run is untouched" each_step_once run/log.jsonl 9

# damage STEP: the first float of the first tensor
damage() {
    damage_dir=$(echo run/checkpoints/step_*"$1")
    damage_at=$(sed -n 's/^B [0-9x]* [0-9x]* 0 \([0-9]*\) .*/\1/p' "$damage_dir/MANIFEST" | head -n 1)
    printf '\377\377\377\377' |
        dd of="$damage_dir/rank_00000-of-00001.h5" bs=1 seek="$damage_at" conv=notrunc 2>/dev/null
}
damage 9
one 0 'resumed from .*step_00000006: step 6' 'damaged newest checkpoint' "$@" --out run --steps 12
like "$one_out" 'step_00000009 is damaged; trying the next older checkpoint' 'and it is named'
passes "each step stands in the log once" each_step_once run/log.jsonl 12
for step in run/checkpoints/step_*; do damage "${step##*_0}"; done
one 74 'none of the [0-9]* checkpoints is intact' 'all checkpoints damaged' "$@" --out run --steps 14
passes "the log is untouched" each_step_once run/log.jsonl 12

# SIGTERM, SIGUSR1: saved, 85. (SIGINT: tests/issues/0142-interrupt.t.)
for signal in TERM USR1; do
    "$TRAIN" "$@" --steps 1000000 --out "sig-$signal" >sig.out 2>&1 &
    pid=$!
    kill_at_exit $pid KILL
    wait_for_step "sig-$signal/log.jsonl" 2 || diag "no step: $(cat sig.out)"
    kill -s $signal $pid
    kill -s $signal $pid 2>/dev/null # twice is as once
    wait $pid
    is $? 85 "SIG$signal: the exit code"
    like "$(cat sig.out)" '; the state of step [0-9]+ is saved' "SIG$signal: saved"
done

# A disk that is full: the save is skipped and the run goes on; the last one is an error.
if [ "$(id -u)" = 0 ] && can_mnt_mode; then
    cat >every.yaml <<'END'
distributed_type: 'NO'
accel:
  checkpoint: {every_steps: 3, keep: 1}
END
    mkdir small
    # shellcheck disable=SC2016 # for the inner shell
    full=$(ACCEL_CONFIG=every.yaml timeout "$HANG_S" unshare -m sh -c '
        mount -t tmpfs -o size=2500k none small || exit 99
        train=$1; shift
        "$train" "$@" --width 64 --layers 2 --steps 8 --out small/o; echo "status $?"
        head -n 8 small/o/log.jsonl >log8.jsonl
        ls small/o/checkpoints' sh "$TRAIN" "$@" 2>&1)
    like "$full" 'checkpoint of step 3 saved' 'disk full: the first checkpoint fits'
    like "$full" 'cannot save the checkpoint of step 6 \(failure 1 in a row\).*the checkpoint of step 3 is intact' \
        'disk full: the training goes on'
    like "$full" '^status 74$' 'disk full: the last save is an error'
    like "$full" '^step_00000003$' 'disk full: the older checkpoint is there'
    passes "disk full: the log is whole" each_step_once log8.jsonl 8
else
    skip 5 "needs root and mount namespaces"
fi

if ! command -v mpirun >/dev/null 2>&1; then
    skip 9 "mpirun is not installed"
    done_testing
fi
train_config two.yaml FULL_SHARD no 2 1
cat >differ.sh <<'END'
#!/bin/sh
extra=$1
shift
[ "${PMIX_RANK:-0}" = 0 ] && extra=
# shellcheck disable=SC2086
exec "$@" $extra
END
chmod +x differ.sh
for extra in "batch 4" "seed 5" "steps 4" "lr 0.1"; do
    two=$(timeout "$HANG_S" "$ACCEL_BUILD/accel" launch --config two.yaml -n 2 \
        ./differ.sh "--$extra" "$TRAIN" "$@" --out differ 2>&1)
    is $? 65 "ranks with different --${extra% *}: exit 65"
    like "$two" "different settings: ${extra% *} is" "ranks with different --${extra% *}: named"
done
two=$(timeout "$HANG_S" "$ACCEL_BUILD/accel" launch --config two.yaml -n 2 "$TRAIN" "$@" --heads 3 2>&1)
is "$(printf '%s\n' "$two" | grep -c 'is not a multiple of')" 1 "two ranks say it once"
done_testing
