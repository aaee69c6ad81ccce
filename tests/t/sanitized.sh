# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
#
# Other tests once more, with the programs of a sanitizer build: each must pass and leave no
# report. Read after lib.sh. Reports go to files, because a test may throw away what a
# program says and expect that it fails: the directory $tap_tmp/reports, which the reader makes.
# It builds nothing.

# Skips the whole test when there is no sanitizer build with FILE in it; sets $asan.
need_sanitizer_build() { # FILE
    asan=${ACCEL_ASAN_BUILD:-$ACCEL_SRC/build-asan}
    [ "$asan" != none ] || skip_all "run without the sanitizer build"
    [ -e "$asan/$1" ] || skip_all "no $1 with sanitizers; scripts/test --all builds it"
    # shellcheck source=tests/sanitizer.sh
    . "$ACCEL_SRC/tests/sanitizer.sh"
}

sanitized_runtime() { # FILE: the shared library of the address sanitizer that it needs
    ldd "$1" 2>/dev/null | awk '$1 ~ /^libasan\./ && $3 ~ /^\// { print $3; exit }'
}

# Has any program written a report NAME.PID? Shows the first ones.
no_report() { # NAME
    for report in "$tap_tmp/reports/$1".*; do
        [ -e "$report" ] || return 0
        diag "$(head -n 40 "$report")"
        return 1
    done
}

# Runs the tests of one lane, one after the other, in the background.
_sanitized_lane() { # TEST...
    lane_plugin=$ACCEL_BUILD/srun_plugin/.libs/accel_spank.so
    for lane_test in "$@"; do
        NODE_PLUGIN=$lane_plugin ACCEL_BUILD=$asan ASAN_OPTIONS=$ASAN_OPTIONS:log_path=$tap_tmp/reports/$lane_test \
            UBSAN_OPTIONS=$UBSAN_OPTIONS:log_path=$tap_tmp/reports/$lane_test \
            "$ACCEL_SRC/tests/t/$lane_test.t" >"$tap_tmp/$lane_test.tap" \
            2>"$tap_tmp/$lane_test.err" </dev/null
        echo $? >"$tap_tmp/$lane_test.rc"
    done
}

# Each argument is a lane: names of tests without .t, separated by blanks. The lanes run side by
# side, because much of a test's time is waiting. Two checks for each test.
sanitized_tests() { # LANE...
    lane_pids=
    for lane in "$@"; do
        # shellcheck disable=SC2086
        _sanitized_lane $lane &
        lane_pids="$lane_pids $!"
    done
    # shellcheck disable=SC2086
    wait $lane_pids
    lane_all=$*
    for name in $lane_all; do
        if grep -q '^1\.\.0' "$tap_tmp/$name.tap"; then
            skip 1 "$name: $(sed -n 's/^1\.\.0 # SKIP //p' "$tap_tmp/$name.tap")"
        else
            is "$(cat "$tap_tmp/$name.rc")" 0 "$name passes ($(grep -c '^ok' "$tap_tmp/$name.tap") checks)" ||
                diag "$(grep -A 8 '^not ok' "$tap_tmp/$name.tap"; tail -n 20 "$tap_tmp/$name.err")"
        fi
        no_report "$name"
        ok $? "$name: no report"
    done
}
