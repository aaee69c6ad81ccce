#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# What a test leaves running is ended with it, and no process that got the number of one that is
# over: with six tests side by side numbers come again within the minute.
# shellcheck source=tests/t/tap.sh
. "$(dirname "$0")/tap.sh"

running() { # PID
    grep -q '^State:[^A-Z]*[^Z] ' "/proc/$1/status" 2>/dev/null
}

sleep 1000 &
pid=$!
(
    tap_cleanup=
    kill_at_exit $pid
    tap_cleanup=$(echo "$tap_cleanup" | sed "s/_tap_end '[0-9]*'/_tap_end '1'/")
    eval "$tap_cleanup"
)
running $pid
ok $? "another process of that number is left alone"
(
    tap_cleanup=
    kill_at_exit $pid
    eval "$tap_cleanup"
)
wait $pid
is $? 143 "the process itself is ended"
(
    tap_cleanup=
    kill_at_exit $pid
    eval "$tap_cleanup"
)
ok $? "one that is over is no matter"

setsid sh -c 'sleep 1000 & wait' &
pid=$!
until child=$(cat /proc/$pid/task/$pid/children) && [ -n "$child" ]; do :; done
(
    tap_cleanup=
    kill_group_at_exit $pid KILL
    eval "$tap_cleanup"
)
wait $pid
is $? 137 "a group is ended"
while running "$child"; do :; done
ok $? "with all its processes"
done_testing
