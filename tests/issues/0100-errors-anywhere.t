#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Mended: an error at the wrong moment (no descriptor, EIO) cost intact checkpoints: what could
# not be read was passed over like damage, and replaced by a later save.
# A random error (EIO, EACCES, EMFILE, ENOSPC) at a random call of one of two ranks, once, a
# few times or from there on, anywhere in open, list, resume, save and log of a training that
# goes on from a checkpoint. Whatever that run made of it: the newest checkpoints that were
# intact or told to be saved are still there, and without the error the next run goes on from
# the newest intact one. `accel ckpt verify` is the judge.
# ERRORS_RUNS (10) and ERRORS_SEED (1) widen it: make check-errors.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/../t/lib.sh"
# shellcheck source=tests/t/train.sh
. "$(dirname "$0")/../t/train.sh"

need_program mpirun
shim=$ACCEL_BUILD/tests/faults/.libs/failcall.so
[ -f "$shim" ] || skip_all "no shim (shared libraries are off)"
! built_with_sanitizer || skip_all "sanitizers and LD_PRELOAD exclude each other"
runs=${ERRORS_RUNS:-10} seed=${ERRORS_SEED:-1}
train_alone
unset ACCEL_CONFIG ACCEL_RESUME
OMP_NUM_THREADS=1
export OMP_NUM_THREADS
cat >two.yaml <<'END'
distributed_type: MULTI_CPU
accel:
  checkpoint: {every_steps: 3, keep: 2}
END

# train LOG STEPS [VARIABLE=VALUE]...: in ./out; the variables are the ranks', not mpirun's
train() {
    train_log=$1 train_steps=$2
    shift 2
    timeout -k 5 "$HANG_S" "$ACCEL_BUILD/accel" launch --config two.yaml -n 2 env "$@" "$TRAIN" \
        --data text.txt --layers 1 --heads 2 --width 16 --seq 16 --batch 2 --sample 0 \
        --steps "$train_steps" --out out >"$train_log" 2>&1
}

# Steps whose directory verifies, one per line, newest first.
intact() {
    for intact_dir in out/checkpoints/step_*; do
        case $intact_dir in *.*) continue ;; esac
        "$ACCEL_BUILD/accel" ckpt verify "$intact_dir" >/dev/null 2>&1 || continue
        sed -n 's/^step //p' "$intact_dir/MANIFEST"
    done | sort -rn
}

mkdir bases
train log 6
is $? 0 "a run of two ranks to step 6" || bail_out "$(cat log)"
is "$(intact | tr '\n' ' ')" "6 3 " "its checkpoints"
cp -R out bases/whole
# The same with a newest one that is damaged: the run has to go back, and move it aside.
newest=out/checkpoints/step_00000006/rank_00001-of-00002.h5
at=$(sed -n 's/^B [0-9x]* [0-9x]* 1 \([0-9]*\) .*/\1/p' out/checkpoints/step_00000006/MANIFEST | head -n 1)
printf '\377\377\377\377' | dd of="$newest" bs=1 seek="$at" conv=notrunc 2>/dev/null
cp -R out bases/damaged
is "$(intact | tr '\n' ' ')" "3 " "a second start, with its newest one damaged"

# How many calls each rank makes from there to step 12: on anything of the run, and on the
# files of finished checkpoints alone, which are what it goes on from.
: >most
for base in whole damaged; do
    for path in /out/ /checkpoints/step_; do
        rm -rf out && cp -R bases/$base out
        rm -f count.*
        train log 12 LD_PRELOAD="$shim" FAILCALL_PATH=$path FAILCALL_COUNT="$tap_tmp/count"
        is $? 0 "$base: on to step 12, calls on $path counted"
        for rank in 0 1; do
            n=$(cat count.$rank 2>/dev/null || echo 0)
            echo "$base $path $rank $n" >>most
            [ "$n" -gt 10 ] || bail_out "the shim was not met: $n calls of rank $rank on $path"
        done
    done
done
diag "$(cat most)"

# ROUND BASE PATH RANK CALL ERROR TIMES: the same ones for a seed
awk -v n="$runs" -v seed="$seed" '
    { key[NR] = $1 " " $2 " " $3; most[NR] = $4 }
    END {
        srand(seed); split("EIO EACCES EMFILE ENOSPC", e, " "); split("1 1 3 0", t, " ")
        for (i = 1; i <= n; i++) {
            k = 1 + int(rand() * NR)
            print i, key[k], 1 + int(rand() * most[k]), e[1 + int(rand() * 4)],
                  t[1 + int(rand() * 4)]
        }
    }' most >rounds

bad=
wrong() { # TEXT: of this round
    bad="$bad
run $i ($base, rank $rank, call $call on $path, $how, times $times): $*"
}
ended_0=0 ended_other=0 met=0
while read -r i base path rank call how times; do
    rm -rf out seen && cp -R bases/"$base" out
    before=3
    [ "$base" = damaged ] || before="3 6"
    train fault.log 12 LD_PRELOAD="$shim" FAILCALL_PATH="$path" FAILCALL_RANK="$rank" \
        FAILCALL_AT="$call" FAILCALL_HOW="$how" FAILCALL_TIMES="$times" \
        FAILCALL_SEEN="$tap_tmp/seen" </dev/null
    rc=$?
    [ ! -e seen ] || met=$((met + 1))
    if [ $rc -eq 0 ]; then
        ended_0=$((ended_0 + 1))
    else
        ended_other=$((ended_other + 1))
        grep -q 'error\[A' fault.log || wrong "exit $rc without a message: $(tail -n 3 fault.log)"
    fi
    [ $rc -lt 124 ] || wrong "exit $rc: $(tail -n 5 fault.log)"
    # What it went on from was the newest one, or it made no step.
    was=${before##* }
    sed -n 's/^resumed from .*: step \([0-9]*\),.*/\1/p; s/^step \([0-9]*\).*/\1/p' fault.log |
        awk -v was="$was" 'NR == 1 && $1 != was { exit 1 }' ||
        wrong "it went on from something else than $was: $(grep -E 'resumed|^step' fault.log | head -n 2)"
    saved=$(sed -n 's/^checkpoint of step \([0-9]*\) saved.*/\1/p' fault.log)
    now=$(intact)
    # keep: 2
    # shellcheck disable=SC2086 # numbers
    for want in $(printf '%s\n' $before $saved | sort -rnu | head -n 2); do
        printf '%s\n' "$now" | grep -q -x "$want" ||
            wrong "step $want is lost; there are $(printf '%s ' out/checkpoints/*)"
    done
    newest=$(printf '%s\n' "$now" | head -n 1)
    train next.log 15 </dev/null
    rc=$?
    [ $rc -eq 0 ] || wrong "without the error: exit $rc: $(grep 'error\[A' next.log || tail -n 3 next.log)"
    grep -q "^resumed from .*/step_0*$newest: step $newest," next.log ||
        wrong "resumed from something else than $newest: $(grep resumed next.log)"
    [ "$(intact | head -n 1)" = 15 ] || wrong "the last checkpoint is not intact"
done <rounds
is "$bad" "" "$runs runs with an error: the newest intact checkpoint is always gone on from"
ok "$((met * 10 < runs * 8))" "the error was met ($met of $runs)"
ok "$((ended_0 == 0 || ended_other == 0))" \
    "$ended_0 runs went on in spite of it, $ended_other ended with a message"
done_testing
