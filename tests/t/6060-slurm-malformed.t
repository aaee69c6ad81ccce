#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# 500 damaged configs, the same at every run (tests/helpers/malformed.c): `accel check` and
# srun end by themselves, each refusal has a code, a place and a cure, nothing is queued, no
# node is drained. srun takes 60 of them, or all with ACCEL_LONG_TESTS=1. Time and memory are
# measured by the kernel and reported; only memory is judged.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"

need_plugin
malformed=$ACCEL_BUILD/tests/helpers/malformed
[ -x "$malformed" ] || skip_all "tests/helpers/malformed is not built"
files=530
[ -n "${ACCEL_LONG_TESTS:-}" ] && some=$files || some=60
tap_tmpdir
mkdir "$tap_tmp/work"
cd "$tap_tmp/work" || bail_out "no directory"

figure() { # NAME
    sed -n "s/.*$1 \([0-9]*\).*/\1/p" ../report
}

# judged WHAT LEAST CMD...: at least so many are refused, all of them well
judged() {
    judged_what=$1 judged_least=$2
    shift 2
    timeout "$HANG_S" "$malformed" "$@" >../report 2>&1
    ok $? "$judged_what: to the end"
    is "$(figure faults)" 0 "$judged_what: none crashes; each refusal has a code, a place and a cure" ||
        diag "$(grep status ../report | head -n 20)"
    [ "$(figure refused)" -ge "$judged_least" ]
    ok $? "$judged_what: at least $judged_least are refused"
    if built_with_sanitizer; then
        skip 1 "the sanitizer needs memory of its own"
    else
        [ $(($(figure rss_kb) - $(figure good_rss_kb))) -le 8192 ]
        ok $? "$judged_what: at most 8 MiB more than for a good file"
    fi
    diag "$(tail -n 1 ../report)"
    [ "$(figure user_ms)" -le 50 ] || diag "warning: more than 50 ms of processor time"
}

judged "accel check" 500 0 "$files" "$ACCEL_BUILD/accel" check {}
cluster_up --nodes 1
before=$(sinfo -h -N -o '%N %T %E')
judged srun $((some * 9 / 10)) 0 "$some" srun -Q -n2 -O --accel-config {} true
is "$(squeue -h)" "" "nothing is queued"
is "$(sinfo -h -N -o '%N %T %E')" "$before" "the node is as it was"
done_testing
