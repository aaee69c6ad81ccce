#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Stops of runs that save to the nodes first, on a shared disk that is slowed and a quick one of the
# node: each stop saves its step in the place that it has the time for, or says why not; the next
# life begins with that step. In the end the log holds every step once with the bits of the
# uninterrupted run.
#     5185-train-staging.t [STOPS [SEED]]    2 stops; make check-staging: 200
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/t/train.sh
. "$(dirname "$0")/train.sh"
# shellcheck source=tests/t/stops.sh
. "$(dirname "$0")/stops.sh"

# A stop that would be followed by a kill KILL_WAIT seconds later.
stop_once() { # CONFIG KILL_WAIT SLOW
    stop_life stops 2 "$1" "$2" "$(random 8 15)" "FAILCALL_SLOW=$3" FAILCALL_SLOW_FROM=30000 \
        FAILCALL_SLOW_PATH=/stops/checkpoints/
}

# Where it goes on is where the last one said.
check_stop() { # WHAT KILL_WAIT
    last=$(last_step stops/log.jsonl)
    is "$rc" 85 "$1: runs again" || diag "$(tail -n 5 stops.said)"
    [ "$kept" = 0 ] || like "$(cat stops.said)" "resumed from .*/step_0*$kept: step $kept," \
        "$1: begins with step $kept"
    if grep -q "the state of step $last is saved in $PWD/node on the nodes" stops.said; then
        local=$((local + 1)) kept=$last
    elif grep -q "the state of step $last is saved in " stops.said; then
        shared=$((shared + 1)) kept=$last
    else
        older=$(sed -n 's/.*step '"$last"' is not saved: .*; the checkpoint of step \([0-9]*\) is kept.*/\1/p' stops.said | head -n 1)
        # a disk that other tests keep busy may not have the first checkpoint in time
        [ "$kept" != 0 ] || ! grep -q "step $last is not saved: .*; there is no older checkpoint" stops.said ||
            older=0
        kept=$older
        declined=$((declined + 1))
    fi
    [ -n "$kept" ] && [ "$took" -le $(($2 + slack)) ]
    ok $? "$1: step $last, kept $kept, in time ($took of $2 s)" || diag "$(tail -n 15 stops.said)"
    "$ACCEL_BUILD/accel" ckpt verify stops/checkpoints >verified 2>&1
    rc=$?
    [ $rc = 0 ] || grep -q 'no checkpoint' verified
    ok $? "$1: whole" || diag "$(cat verified)"
}

for async in false true; do
    for busy in skip wait; do
        train_config $async-$busy.yaml FULL_SHARD bf16 2 1 "checkpoint: {every_steps: 6,
            local_dir: $PWD/node, async: $async, when_busy: $busy}"
    done
done
train_config plain.yaml FULL_SHARD bf16 2 1 "checkpoint: {every_minutes: 0}"
live whole 2 plain
ok $? "uninterrupted" || diag "$(tail -n 3 whole.said)"
local=0 shared=0 declined=0 kept=0 stop=0
# Too little time is a matter of the machine as well: a stop more where a place was not chosen yet.
more() {
    [ $stop -lt "$stops" ] ||
        { [ $local = 0 ] || [ $shared = 0 ]; } && [ $stop -lt $((stops + 8)) ]
}
while more; do
    stop=$((stop + 1))
    async=false
    [ "$(random 0 2)" != 0 ] || async=true
    busy=wait kill_wait=$(random 8 20) slow=1000
    # A step that waits for a copy has no time left in the end, not even for a save on the nodes.
    [ $((stop % 2)) = 0 ] || busy=skip kill_wait=3 slow=2000
    [ $((stop % 4)) != 2 ] || kill_wait=60
    stop_once $async-$busy "$kill_wait" $slow
    check_stop "stop $stop, async $async, $busy, $kill_wait s" "$kill_wait"
done
live stops 2 false-wait
ok $? "runs to its end" || diag "$(tail -n 5 stops.said)"
each_step_once stops/log.jsonl "$STEPS"
ok $? "every step once"
same_bits whole/log.jsonl stops/log.jsonl
ok $? "the same bits"
[ $local -ge 1 ] && [ $shared -ge 1 ]
ok $? "$local stops saved on the nodes, $shared in the shared directory, $declined declined"
is "$(find node stops/checkpoints -name '*step_*.local.*' | wc -l)" 0 "nothing is left on the nodes"
done_testing
