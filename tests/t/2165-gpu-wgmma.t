#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# What ptxas says of the attention's kernels for sm_90a: none spills a register, and none has
# its products put one after the other, which the compiler does where it cannot prove that
# their sums are left alone meanwhile. Needs nvcc, no GPU.
# shellcheck source=tests/t/tap.sh
. "$(dirname "$0")/tap.sh"

report() { # SOURCE CUBIN
    make -s -C "$ACCEL_BUILD" cuda-report SOURCE="$1" CUBIN="$2" 2>&1
}
make -n -C "$ACCEL_BUILD" cuda-report 2>/dev/null | grep -q cubin ||
    skip_all "this build has no CUDA module"
tap_tmpdir

# Reports of ptxas, a line per kernel: its name, bytes on the stack, bytes spilled.
kernels() { # REPORT
    awk '/Compiling entry function/ { split($0, part, "\047"); name = part[2] }
        /bytes stack frame/ { print name, $1, $5 + $9 }' "$1"
}

for source in forward backward dq; do
    report "$ACCEL_SRC/runtime/backend/cuda/attention/attention_wgmma_$source.cu" "$tap_tmp/cubin" \
        >"$tap_tmp/report"
    ok $? "$source is compiled for sm_90a" || diag "$(tail -n 5 "$tap_tmp/report")"
    kernels "$tap_tmp/report" >"$tap_tmp/kernels"
    is "$(grep -c attention_wgmma "$tap_tmp/kernels")" 8 \
        "$source: two types, two widths, with dropout and without"
    is "$(awk '$2 + $3 > 0' "$tap_tmp/kernels")" "" "$source: nothing spills"
    unlike "$(cat "$tap_tmp/report")" 'serializ' "$source: products stay asynchronous"
done
done_testing
