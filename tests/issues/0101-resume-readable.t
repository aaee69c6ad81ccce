#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Mended: whatever could not be read passed for damaged, and the run went back too far.
# A training goes back to an older checkpoint only when the newer one is proven to be damaged:
# few descriptors do not matter, a checkpoint that may not be read ends the run with 77, one
# that cannot be read with 74, one of a newer format with 65, and nothing is written then. A
# damaged one is moved aside, a directory of the user's stays.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/../t/lib.sh"
# shellcheck source=tests/t/train.sh
. "$(dirname "$0")/../t/train.sh"

need_program prlimit
train_alone
shim=$ACCEL_BUILD/tests/faults/.libs/failcall.so
unset ACCEL_RESUME
OMP_NUM_THREADS=1
export OMP_NUM_THREADS
cat >one.yaml <<'END'
distributed_type: 'NO'
accel:
  checkpoint: {every_steps: 2, keep: 2}
END
ACCEL_CONFIG=one.yaml
export ACCEL_CONFIG

# train STEPS [VARIABLE=VALUE]... [COMMAND ARG...]: one process in ./out, into $out
train() {
    train_steps=$1
    shift
    out=$(timeout "$HANG_S" env "$@" "$TRAIN" --data text.txt --layers 1 --heads 2 --width 16 \
        --seq 16 --batch 2 --sample 0 --steps "$train_steps" --out out 2>&1)
}
state() { # the names there, and what each file holds
    (cd out/checkpoints && find . -type f ! -name history ! -name .lock -exec cksum {} + | sort)
}
fresh() { # steps 4 and 6, from the first run
    rm -rf out && cp -R first out
}

train 6
is $? 0 "a run to step 6" || bail_out "$out"
mv out first

fresh
train 8 prlimit --nofile=16
is $? 0 "with 16 descriptors: exit 0"
like "$out" 'resumed from .*step_00000006: step 6' "and it goes on from the newest one"

if [ ! -f "$shim" ]; then
    skip 29 "no shim (shared libraries are off)"
elif built_with_sanitizer; then
    skip 29 "sanitizers and LD_PRELOAD exclude each other"
else
    for how in EIO/74 EMFILE/74 EACCES/77; do
        fresh
        before=$(state)
        train 8 LD_PRELOAD="$shim" FAILCALL_PATH=/step_00000006/rank FAILCALL_AT=1 \
            FAILCALL_TIMES=0 FAILCALL_HOW="${how%/*}"
        is $? "${how#*/}" "${how%/*} on the newest shard: exit ${how#*/}"
        like "$out" 'error\[A08(10|32)\]: .*step_00000006/rank_00000-of-00001.h5: cannot open: ' \
            "the file is named"
        is "$(state)" "$before" "and nothing is written"
    done
    # Each call on the log of the steps that are done fails: it is shortened whole or not at all.
    wrong='' n=2
    while :; do
        fresh
        rm -f seen
        train 8 LD_PRELOAD="$shim" FAILCALL_PATH=/log.jsonl FAILCALL_AT=$n FAILCALL_HOW=EIO FAILCALL_SEEN=seen
        [ -e seen ] || break
        [ "$(losses out/log.jsonl | head -n 6)" = "$(losses first/log.jsonl)" ] || wrong="$wrong $n"
        n=$((n + 4))
    done
    is "$wrong" "" "lines of the log stay, whichever call fails, of some $n"
    [ $n -gt 5 ]
    ok $? "they are met"
    # merge-weights removes a checkpoint only when its weights are written.
    for file in step_00000006 step_00000006/MANIFEST step_00000006/rank; do
        fresh
        before=$(state)
        for from in out/checkpoints out/checkpoints/step_00000006; do
            rm -rf weights
            out=$(LD_PRELOAD="$shim" FAILCALL_PATH=/$file FAILCALL_AT=1 FAILCALL_TIMES=0 FAILCALL_HOW=EIO \
                "$ACCEL_BUILD/accel" merge-weights -r $from weights 2>&1)
            is $? 74 "merge-weights -r $from, EIO on $file: exit 74"
            contains "$out" "$file" "the file is named"
            is "$(state)" "$before" "and nothing is removed"
        done
    done
fi
if [ "$(id -u)" = 0 ]; then
    skip 2 "root may read everything"
else
    fresh
    chmod 000 out/checkpoints/step_00000006/*.h5
    train 8
    is $? 77 "chmod 000 on the newest shard: exit 77"
    chmod 644 out/checkpoints/step_00000006/*.h5
    train 8
    like "$out" 'resumed from .*step_00000006: step 6' "and once it may be read it is gone on from"
fi

# A newer format may be anything but for its first line.
fresh
sed -i '1s/1$/2/' out/checkpoints/step_00000006/MANIFEST
before=$(state)
train 8
is $? 65 "the newest one has a newer format: exit 65"
like "$out" 'error\[A0813\]: .*step_00000006/MANIFEST: the checkpoint has format 2, but this library .* reads format 1' \
    "both versions are named"
is "$(state)" "$before" "and nothing is written"
like "$("$ACCEL_BUILD/accel" ckpt ls out/checkpoints)" 'step_00000006 .*other format.*format 2' \
    "accel ckpt ls says so"

# Damage: back to the older one, and the damaged one steps aside.
fresh
truncate -s -1 out/checkpoints/step_00000006/rank_00000-of-00001.h5
before=$(cksum <out/checkpoints/step_00000006/rank_00000-of-00001.h5)
mkdir out/checkpoints/step_00000002
echo mine >out/checkpoints/step_00000002/notes
cp -R out/checkpoints/step_00000004 out/checkpoints/step_00000003
train 5
is $? 0 "the newest one is cut: the run goes on"
like "$out" 'resumed from .*step_00000004: step 4' "from the older one"
like "$out" 'step_00000006 was moved aside to step_00000006\.damaged-[0-9TZ]+' "it says where the damaged one is"
is "$(cksum <"$(echo out/checkpoints/step_00000006.damaged-*/rank_00000-of-00001.h5)")" "$before" \
    "which is as it was"
passes "the one it went on from is kept" "$ACCEL_BUILD/accel" ckpt verify out/checkpoints/step_00000004
train 10
is $? 0 "further saves"
is "$(cd out/checkpoints && echo step_*[0-9])" "step_00000002 step_00000003 step_00000008 step_00000010" \
    "retention leaves a directory and a copy that somebody made"
passes "and the damaged one" ls -d out/checkpoints/step_00000006.damaged-*
done_testing
