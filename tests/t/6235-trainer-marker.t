#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The marker of a Trainer's checkpoint: every kind of damage is found, a write that fails leaves
# none, all ranks choose the same checkpoint, and all of it is on the disk. Without torch.
. "$(dirname "$0")/tap.sh"

command -v python3 >/dev/null || skip_all "python3 is not installed"
[ -f "$ACCEL_BUILD/.libs/libacceljob.so" ] || skip_all "libacceljob is not built"
built_with_sanitizer && skip_all "python3 has no sanitizer runtime"
tap_tmpdir
{ mkdir "$tap_tmp/there" "$tap_tmp/run" && ln -s "$ACCEL_BUILD/.libs" "$tap_tmp/there/lib"; } ||
    bail_out "no directory"
cd "$tap_tmp/run" || bail_out "no directory"
SHIM=$ACCEL_BUILD/tests/faults/.libs/disklog.so ACCEL_ROOT=$tap_tmp/there PYTHONPATH=$ACCEL_SRC/python \
    PYTHONDONTWRITEBYTECODE=1 timeout "$HANG_S" python3 "$ACCEL_SRC/tests/data/python/marker_units.py"
