#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Stops with more and with less time than a save takes, on a slowed disk: each one saves its
# step or says why not and what it keeps, and none saves beyond its time. In the end the log holds
# every step once with the bits of the uninterrupted run.
#     5180-train-deadline.t [STOPS [SEED]]    2 stops; make check-deadline: 200
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/t/train.sh
. "$(dirname "$0")/train.sh"
# shellcheck source=tests/t/stops.sh
. "$(dirname "$0")/stops.sh"
SLOW=50 # ms for each write to the disk

newest() { # NAME
    find "$1/checkpoints" -maxdepth 1 -name 'step_????????' | sort | tail -n 1 |
        sed 's/.*step_0*//'
}

# One stop of run NAME, which KILL_WAIT seconds after it would be killed.
stop_once() { # NAME RANKS FORM KILL_WAIT
    stop_life "$1" "$2" "$2-$3" "$4" "$(random 2 9)" "FAILCALL_SLOW=$SLOW"
}

# What the stop says is what is there.
check_stop() { # NAME WHAT KILL_WAIT
    last=$(last_step "$1/log.jsonl")
    there=$(newest "$1")
    is "$rc" 85 "$2: runs again"
    if grep -q "stopped (signalled); the state of step $last is saved in " "$1.said"; then
        is "$there" "$last" "$2: step $last is saved"
        [ "$took" -le $(($3 + slack)) ]
        ok $? "$2: in time ($took s)"
        saved=$((saved + 1))
    else
        like "$(cat "$1.said")" "stopped \\(signalled\\); step $last is not saved: (a checkpoint takes about [0-9.]+ s, and [0-9.]+ s are left of KillWait|the checkpoint of step [0-9]+ was not written by the end of KillWait); the checkpoint of step $there is kept" \
            "$2: step $last is declined, step $there is kept"
        declined=$((declined + 1))
    fi
    "$ACCEL_BUILD/accel" ckpt verify "$1/checkpoints" >verified 2>&1
    ok $? "$2: whole" || diag "$(cat verified)"
}

for n in 1 2; do
    train_config $n-once.yaml FULL_SHARD bf16 $n 1 \
        "checkpoint: {every_steps: 6, keep: 2, async: false}"
    train_config $n-late.yaml FULL_SHARD bf16 $n 1 \
        "checkpoint: {every_steps: 6, keep: 2, async: true}"
    train_config $n-plain.yaml FULL_SHARD bf16 $n 1 "checkpoint: {every_minutes: 0}"
    live "whole-$n" "$n" "$n-plain"
    ok $? "$n ranks: uninterrupted" || diag "$(tail -n 3 "whole-$n.said")"
done
saved=0 declined=0
for n in 1 2; do
    # a first life, of which the others know how long a save takes
    stop_once "stops-$n" $n once 60
    check_stop "stops-$n" "$n ranks: the first life" 60
    stop=0
    while [ $stop -lt $(((stops + 1) / 2)) ]; do
        stop=$((stop + 1))
        form=once
        [ "$(random 0 2)" != 0 ] || form=late
        kill_wait=$(random 5 20)
        [ $((stop % 2)) = 0 ] || kill_wait=1
        stop_once "stops-$n" "$n" $form "$kill_wait"
        check_stop "stops-$n" "$n ranks: stop $stop, $form, $kill_wait s" "$kill_wait"
    done
    live "stops-$n" "$n" "$n-plain"
    ok $? "$n ranks: runs to its end" || diag "$(tail -n 5 "stops-$n.said")"
    each_step_once "stops-$n/log.jsonl" "$STEPS"
    ok $? "$n ranks: every step once"
    same_bits "whole-$n/log.jsonl" "stops-$n/log.jsonl"
    ok $? "$n ranks: the same bits"
done
[ $saved -ge 2 ] && [ $declined -ge 2 ]
ok $? "both kinds: $saved saved, $declined declined"
done_testing
