#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# examples/ddp_loop.py and fsdp2_loop.py on two ranks under accel launch: stopped by a signal to
# every process, data loader workers too, and resumed, they see the same samples in the same
# steps as an undisturbed run, with the same losses, and end with the same weights, bit for bit.
# Each with both signals, and stopped twice.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/t/peers.sh
. "$(dirname "$0")/peers.sh"
[ -n "${ACCEL_LONG_TESTS:-}" ] || skip_all "takes minutes: set ACCEL_LONG_TESTS=1 (6250 is the short form)"
[ -f "$ACCEL_BUILD/.libs/libacceljob.so" ] || skip_all "libacceljob is not built"
need_program ps
tap_tmpdir
need_peers torch
printf 'distributed_type: MULTI_CPU\nnum_processes: 2\nuse_cpu: true\n' >two.yaml
PATH=$(dirname "$("$python" -c 'import sys; print(sys.executable)')"):$PATH
lives=2

endless=1000000000 # steps of a run that is told to stop

# shellcheck disable=SC2317 # called by wait_until
steps_done() { # FILE COUNT
    [ "$(grep -c '^rank 0 step ' "$1" 2>/dev/null)" -ge "$2" ] 2>/dev/null
}
below() { # PID: the processes that it has started, and theirs
    for child in $(ps -o pid= --ppid "$1"); do
        echo "$child"
        below "$child"
    done
}
start() { # NUMBER ARG...: in the background, $launcher
    number=$1
    shift
    ACCEL_RESTART_COUNT=$number timeout "$HANG_S" "$ACCEL_BUILD/accel" launch --config two.yaml "$@" \
        >"life.$number" 2>&1 </dev/null &
    launcher=$!
    kill_at_exit $launcher KILL
}
tell() { # SIGNAL: to every process but the launcher
    wait_until steps_done "life.$number" 20 || bail_out "it does not run: $(cat "life.$number")"
    for accel in $(ps -o pid= --ppid $launcher); do
        for pid in $(below "$accel"); do
            kill -s "$1" "$pid" 2>/dev/null
        done
    done
}
ends_with() { # CODE
    wait $launcher
    is $? "$1" "$what: exit code of life $number" || diag "$(tail "life.$number")"
}
# What each rank has done, step by step; lines of two ranks may share one line of the log.
seen() { # FILE...
    cat "$@" | grep -o 'rank [01] step [0-9]* samples \[[^]]*\] loss [0-9.]*' | sort
}
stopped() { # SIGNAL NAME ARG...
    signal=$1 name=$2 what="$2, SIG$1"
    shift 2
    rm -rf life.* cut whole
    for life in $(seq 0 $((lives - 1))); do
        start "$life" "$ACCEL_SRC/examples/$name.py" --directory cut --steps $endless "$@"
        tell "$signal"
        ends_with 85
    done
    last=$(seen life.* | sed -n 's/^rank 0 step \([0-9]*\) .*/\1/p' | sort -n | tail -n 1)
    start "$lives" "$ACCEL_SRC/examples/$name.py" --directory cut --steps $((last + 20)) "$@"
    ends_with 0
    like "$(cat life.$lives)" "^attempt $lives of .*: resumes at step $last" "$what: it was resumed"
    timeout "$HANG_S" "$ACCEL_BUILD/accel" launch --config two.yaml "$ACCEL_SRC/examples/$name.py" \
        --directory whole --steps $((last + 20)) "$@" >whole.out 2>&1
    is $? 0 "$what: an undisturbed run ends" || diag "$(tail whole.out)"
    is "$(seen life.*)" "$(seen whole.out)" \
        "$what: each step once, with the samples and the loss of the undisturbed run"
    is "$(grep '^finished: weights' life.$lives)" "$(grep '^finished: weights' whole.out)" \
        "$what: the same weights"
}
for signal in TERM USR1; do
    stopped "$signal" ddp_loop --workers 2
done
for signal in TERM USR1; do
    stopped "$signal" fsdp2_loop
done
done_testing
