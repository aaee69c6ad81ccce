#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Mended: the recipe of doc/python.md had no agreement between ranks: one saved and ended with 85 while
# another one waited for it in the next step, and died.
# The page's three lines, in the example with Accelerate: all ranks save the same step and end with
# 85, whichever rank is told, with either signal, in whatever order. Resumed, the run sees the samples,
# and ends with the weights, of one that nobody has stopped.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/../t/lib.sh"
# shellcheck source=tests/t/peers.sh
. "$(dirname "$0")/../t/peers.sh"
tap_tmpdir
need_peers 'torch, accelerate'
PATH=$(dirname "$python"):$PATH
printf 'distributed_type: MULTI_CPU\nnum_processes: 2\nuse_cpu: true\n' >two.yaml
export PYTHONUNBUFFERED=1

train() { # DIRECTORY STEPS
    timeout "$HANG_S" "$ACCEL_BUILD/accel" launch --config two.yaml "$ACCEL_SRC/examples/accelerate_loop.py" \
        --directory "$1" --steps "$2" --save-every 1000000000 </dev/null
}
# What both ranks have done, step by step; lines of two ranks may share one line of the log.
seen() { # LOG...
    cat "$@" | grep -o 'rank [01] step [0-9]* samples \[[^]]*\] loss [0-9.]*' | sort -u
}
# shellcheck disable=SC2317 # called by wait_until
at_step() { # LOG STEP
    grep -q "rank 0 step $2 " "$1" && grep -q "rank 1 step $2 " "$1"
}

row() { # SIGNAL:RANK...
    name=$(echo "$*" | tr ' :' '__')
    "$ACCEL_BUILD/accel" launch --config two.yaml "$ACCEL_SRC/examples/accelerate_loop.py" \
        --directory "$name" --steps 1000000000 --save-every 1000000000 >"$name.log" 2>&1 </dev/null &
    launcher=$!
    kill_at_exit $launcher KILL
    wait_until at_step "$name.log" 3 || bail_out "it does not run: $(cat "$name.log")"
    for notice; do
        kill -s "${notice%:*}" "$(pgrep -P $launcher | sed -n "$((${notice#*:} + 1))p")"
    done
    wait $launcher
    is $? 85 "$*: ends with 85" || diag "$(tail -n 20 "$name.log")"
    saved=$(find "$name" -name 'step-*' -prune | sed 's/.*step-//')
    like "$saved" '^[0-9]+$' "$*: both ranks save one step"
    train "$name" $((saved + 20)) >"$name.more" 2>&1
    is $? 0 "$*: resumed, it ends" || diag "$(tail -n 20 "$name.more")"
    train "$name.whole" $((saved + 20)) >"$name.whole.log" 2>&1
    is "$(seen "$name.log" "$name.more")" "$(seen "$name.whole.log")" \
        "$*: which have seen the samples of a run that nobody has stopped"
    is "$(grep -o 'finished: weights .*' "$name.more")" \
        "$(grep -o 'finished: weights .*' "$name.whole.log")" "$*: and ends with its weights"
}
row USR1:0 TERM:1 TERM:0
row TERM:1
done_testing
