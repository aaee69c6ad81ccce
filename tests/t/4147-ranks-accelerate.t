#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Between ranks, beside Hugging Face Accelerate as it is now: two processes (gloo) gather,
# reduce, broadcast, pad and split, and gather the metrics of their loaders; ours give the
# same. What differs on purpose (the scale of a reduction) is not in it.
. "$(dirname "$0")/tap.sh"

python=${ACCEL_PEERS_PYTHON:-python3}
"$python" -c 'import accelerate, torch' 2>/dev/null ||
    skip_all "no accelerate and torch in $python (set ACCEL_PEERS_PYTHON)"
tap_tmpdir
cd "$tap_tmp" || bail_out "no directory"
HF_HUB_OFFLINE=1 PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1
export HF_HUB_OFFLINE PYTHONDONTWRITEBYTECODE OMP_NUM_THREADS
timeout "$HANG_S" "$ACCEL_BUILD/accel" launch --cpu -n 2 "$python" \
    "$ACCEL_SRC/tests/data/ranks/accelerate_rows.py" "$tap_tmp" >out 2>&1
ok $? "Accelerate makes the calls" || diag "$(tail -20 out)"
[ "$(wc -l <calls.txt)" -gt 200 ]
ok $? "$(wc -l <calls.txt) rows of calls"
"$ACCEL_BUILD/tests/helpers/ranks_rows" calls.txt >out 2>&1
ok $? "ours give the same: $(tail -1 out)" || diag "$(head -20 out)"
"$ACCEL_BUILD/tests/unit/test_ranks_metrics" loaders.txt >out 2>&1
like "$(cat out)" '^ok 1 - rows of Accelerate' "$(wc -l <loaders.txt) loaders have the same metrics" ||
    diag "$(grep '^#' out | head -20)"
done_testing
