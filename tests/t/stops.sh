# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
#
# For tests that stop trainings at random on a disk that tests/faults/failcall slows: the arguments
# [STOPS [SEED]], random numbers that a seed repeats, and lives of a run. Read after train.sh; sets
# $stops and $STEPS, and enters a directory of the test's own.

! built_with_sanitizer || skip_all "sanitizers and LD_PRELOAD exclude each other"
shim=$ACCEL_BUILD/tests/faults/.libs/failcall.so
[ -r "$shim" ] || skip_all "tests/faults/failcall is not built"
stops=${1:-2} seed=${2:-$$}
# Seconds that a stop may take beyond its limit: a short run is one of many on a busy machine.
# shellcheck disable=SC2034 # for the tests
slack=10
[ "$stops" -lt 20 ] || slack=2
train_alone
OMP_NUM_THREADS=1
export OMP_NUM_THREADS
diag "$stops stops; seed $seed"
echo "$seed" >state
STEPS=$((stops * 150 + 400))
# A life that takes so many seconds hangs; the first and the last one of a campaign have nearly all
# steps. A limit that a busy machine reaches would be one more stop: 85, and the rest not trained.
longest=$((HANG_S + 4 * stops))

random() { # LOW HIGH: LOW..HIGH
    awk -v low="$1" -v high="$2" '{ s = ($1 * 16807 + 11) % 2147483647; print s >FILENAME
        print low + int(s / 2147483647 * (high - low + 1)) }' state
}

# live NAME RANKS CONFIG [ENV...]: a life of the run NAME
live() {
    name=$1 n=$2 config=$3
    shift 3
    env "$@" timeout "$longest" "$ACCEL_BUILD/accel" launch --config "$config.yaml" -n "$n" "$TRAIN" \
        --layers 1 --heads 2 --width 32 --seq 32 --batch 2 --steps "$STEPS" --sample 0 \
        --data text.txt --out "$name" >"$name.said" 2>&1
}

# stop_life NAME RANKS CONFIG KILL_WAIT WAIT ENV...: a life that is stopped WAIT steps on, and would
# be killed KILL_WAIT seconds after that. Sets $rc and $took, in seconds.
stop_life() {
    name=$1 n=$2 config=$3 kill_after=$4 later=$5
    shift 5
    before=$(last_step "$name/log.jsonl")
    live "$name" "$n" "$config" "LD_PRELOAD=$shim" "ACCEL_PREEMPTION_NOTICE=low OFF 0 $kill_after" \
        "$@" &
    life=$!
    wait_for_step "$name/log.jsonl" $((before + later))
    read -r limit <"/proc/$life/task/$life/children"
    read -r launch <"/proc/$limit/task/$limit/children"
    kill -TERM "$launch"
    from=$(date +%s)
    wait $life
    rc=$?
    took=$(($(date +%s) - from))
}
