#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# examples/custom_loop has the losses of examples/serial_loop on 1 to 4 ranks, and the page
# for Accelerate's users shows how the two differ. examples/streaming and examples/metrics
# learn the same on 1 and 2 ranks.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/t/train.sh
. "$(dirname "$0")/train.sh"
examples=$ACCEL_BUILD/examples
tap_tmpdir
cd "$tap_tmp" || bail_out "no directory"
unset SLURM_JOB_ID ACCEL_CONFIG_RESOLVED
OMP_NUM_THREADS=1
export OMP_NUM_THREADS
for name in custom_loop metrics serial_loop streaming; do
    [ "$(wc -l <"$ACCEL_SRC/examples/$name.c")" -le 150 ]
    ok $? "examples/$name.c has at most 150 lines"
done

# ---- the page ----

(cd "$ACCEL_SRC/examples" && diff -u --label serial_loop.c --label custom_loop.c \
    serial_loop.c custom_loop.c) | sed 's/^/    /; s/ *$//' >is.diff
sed -n '/^    --- serial_loop.c/,/^[^ ]/p' "$ACCEL_SRC/doc/for-accelerate-users.md" |
    sed '/^[^ ]/d; s/ *$//' | sed '$ { /^$/d }' >shown.diff
cmp -s is.diff shown.diff
ok $? "the page shows how the two programs differ" || diag "$(diff is.diff shown.diff)"

# ---- losses ----

# on RANKS NAME OUT [ARG]...: one process by itself, several by accel launch
on() {
    ranks=$1 name=$2
    shift 2
    train_config "$ranks.yaml" FULL_SHARD no "$ranks" 1
    if [ "$ranks" = 1 ]; then
        ACCEL_CONFIG=1.yaml "$examples/$name" "$@" >said 2>&1
    else
        timeout "$HANG_S" "$ACCEL_BUILD/accel" launch --config "$ranks.yaml" -n "$ranks" \
            "$examples/$name" "$@" >said 2>&1
    fi
    ok $? "$name on $ranks rank(s)" || diag "$(tail -n 5 said)"
}

worlds="1 2 4"
command -v mpirun >/dev/null 2>&1 || worlds=1
mkdir -p serial
"$examples/serial_loop" | sed 's/\([0-9]*\) \(.*\)/{"step":\1,"loss":\2,}/' >serial/log.jsonl
for n in $worlds; do
    on "$n" custom_loop "loop$n"
    close_losses serial/log.jsonl "loop$n/log.jsonl" 400 1e-5 "the losses of the serial loop"
done
worlds=${worlds% 4}
for n in $worlds; do
    on "$n" streaming "cat '$ACCEL_SRC/examples/sample.txt'" 60 "stream$n"
    on "$n" metrics "metrics$n"
    grep -o 'accuracy .*' said >"accuracy$n"
done
[ "$worlds" = 1 ] && { skip 3 "mpirun is not installed"; done_testing; }
close_losses stream1/log.jsonl stream2/log.jsonl 60 1e-5 \
    "streaming: the same samples, over several runs of the command"
close_losses metrics1/log.jsonl metrics2/log.jsonl 2000 1e-4 "metrics: the same samples"
is "$(cat accuracy2)" "$(cat accuracy1)" "metrics: the same accuracy"
done_testing
