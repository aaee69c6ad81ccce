# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
#
# Read in before tests run (they need ACCEL_SRC). Threads that wait for others sleep: beside
# other programs on the same cores those that spin make a test 70 times as long. In a
# sanitizer build a finding ends the program with status 99, and leaks of other libraries
# are told from ours by whole call stacks, because those libraries have no frame pointers.
OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
export OMP_WAIT_POLICY
ASAN_OPTIONS=exitcode=99:detect_leaks=1:fast_unwind_on_malloc=0
LSAN_OPTIONS=suppressions=$ACCEL_SRC/tests/data/lsan.supp:print_suppressions=0
UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
# Ranks are forked from a process that has threads, and start some of their own. What the
# libraries do among themselves is not ours to judge.
TSAN_OPTIONS=exitcode=99:die_after_fork=0:ignore_noninstrumented_modules=1
export ASAN_OPTIONS LSAN_OPTIONS UBSAN_OPTIONS TSAN_OPTIONS
if grep -q '^ACCEL_CFLAGS = .*-fsanitize=thread' "${ACCEL_BUILD:-$ACCEL_SRC}/Makefile" 2>/dev/null; then
    # UCX hooks madvise, and its hook runs in threads that ThreadSanitizer has ended.
    UCX_MEM_EVENTS=no UCX_MEM_MMAP_HOOK_MODE=none
    export UCX_MEM_EVENTS UCX_MEM_MMAP_HOOK_MODE
fi
