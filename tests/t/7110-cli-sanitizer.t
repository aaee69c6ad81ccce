#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The `accel` command built with the address and undefined-behaviour sanitizers: its tests pass
# with it, and no sub-command, good or refusing, ends with a report or a leak.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/t/sanitized.sh
. "$ACCEL_SRC/tests/t/sanitized.sh"

need_sanitizer_build accel
tap_tmpdir
mkdir "$tap_tmp/reports"

# First that a report would be seen: the largest config is read into one piece of memory.
head -c 1048576 /dev/zero | tr '\0' '#' >"$tap_tmp/large.yaml"
ASAN_OPTIONS=$ASAN_OPTIONS:max_allocation_size_mb=1:log_path=$tap_tmp/reports/sample \
    timeout "$HANG_S" "$asan/accel" check "$tap_tmp/large.yaml" >/dev/null 2>&1
is $? 99 "a report has an exit code of its own"
contains "$(cat "$tap_tmp"/reports/sample.*)" runtime/config/read/file.c "and lies where it is looked for"

# Those that start ranks need whole stacks, by which leaks of PMIx are told from ours. For the
# others frame pointers do, which takes half the time.
sanitized_tests "1050-config-plan 1070-config-engines" 1105-messages-shown
ASAN_OPTIONS=$ASAN_OPTIONS:fast_unwind_on_malloc=1
sanitized_tests "1000-config-messages 1010-config-cli 1060-config-doctor 1080-config-command" \
    "1085-config-ask 1030-config-schema 1090-config-fsdp2 2000-topo-cli 2010-topo-maps"
done_testing
