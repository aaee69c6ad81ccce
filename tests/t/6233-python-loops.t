#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# examples/ddp_loop.py and fsdp2_loop.py on two ranks under accel launch: stopped by a signal to
# every process, data loader workers too, and resumed, they see the same samples in the same
# steps as an undisturbed run, with the same losses, and end with the same weights, bit for bit.
# ACCEL_LONG_TESTS=1: each with both signals, and stopped twice.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/t/peers.sh
. "$(dirname "$0")/peers.sh"
[ -f "$ACCEL_BUILD/.libs/libacceljob.so" ] || skip_all "libacceljob is not built"
need_program ps
tap_tmpdir
need_peers torch
printf 'distributed_type: MULTI_CPU\nnum_processes: 2\nuse_cpu: true\n' >two.yaml
PATH=$(dirname "$("$python" -c 'import sys; print(sys.executable)')"):$PATH
lives=1 signals=
[ -z "${ACCEL_LONG_TESTS:-}" ] || lives=2 signals='TERM USR1'

# shellcheck disable=SC2317 # called by wait_until
reached() { # FILE STEP
    [ "$(sed -n 's/^rank 0 step \([0-9]*\) .*/\1/p' "$1" 2>/dev/null | tail -n 1)" -ge "$2" ] 2>/dev/null
}
below() { # PID: the processes that it has started, and theirs
    for child in $(ps -o pid= --ppid "$1"); do
        echo "$child"
        below "$child"
    done
}
life() { # NUMBER ARG...: $rc; but for the last one it is stopped in some step
    number=$1
    shift
    ACCEL_RESTART_COUNT=$number timeout "$HANG_S" "$ACCEL_BUILD/accel" launch --config two.yaml "$@" \
        >"life.$number" 2>&1 </dev/null &
    launcher=$!
    kill_at_exit $launcher KILL
    if [ "$number" -lt $lives ]; then
        wait_until reached "life.$number" $((number * 40 + 40)) ||
            bail_out "it does not run: $(cat "life.$number")"
        for pid in $(below "$(ps -o pid= --ppid $launcher)"); do
            kill -s "$signal" "$pid" 2>/dev/null
        done
    fi
    wait $launcher
    rc=$?
}
whole() { # NAME ARG...: the undisturbed run
    name=$1
    shift
    timeout "$HANG_S" "$ACCEL_BUILD/accel" launch --config two.yaml "$ACCEL_SRC/examples/$name.py" \
        --directory "$name.whole" "$@" >"$name.out" 2>&1
    is $? 0 "$name: an undisturbed run ends" || diag "$(tail "$name.out")"
    grep '^rank' "$name.out" | sort >"$name.steps"
}
stopped() { # SIGNAL NAME ARG...
    signal=$1 name=$2 what="$2, SIG$1"
    shift 2
    rm -rf life.* cut
    for life in $(seq 0 $lives); do
        life "$life" "$ACCEL_SRC/examples/$name.py" --directory cut "$@"
        is $rc "$([ "$life" -lt $lives ] && echo 85 || echo 0)" "$what: exit code of life $life" ||
            diag "$(tail "life.$life")"
    done
    like "$(cat life.$lives)" "^attempt $lives of .*: resumes at step" "$what: it was resumed"
    cat life.* | grep '^rank' | sort >steps
    passes "$what: each step once, with the samples and the loss of the undisturbed run" \
        diff "$name.steps" steps
    is "$(grep '^finished: weights' life.$lives)" "$(grep '^finished: weights' "$name.out")" \
        "$what: the same weights"
}
whole ddp_loop --steps 200
for signal in ${signals:-TERM}; do
    stopped "$signal" ddp_loop --steps 200 --workers 2
done
whole fsdp2_loop --steps 150
for signal in ${signals:-USR1}; do
    stopped "$signal" fsdp2_loop --steps 150
done
done_testing
