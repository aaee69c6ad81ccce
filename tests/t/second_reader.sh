# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
#
# For tests that compare accel with the reader of checkpoints that was written from
# doc/checkpoint-format.md alone (tests/helpers/second_reader.py). Read after tap.sh; skips the
# test where there is no Python for it, sets $python and enters a directory of the test's own.

python=
for p in python3 /usr/bin/python3; do
    "$p" -c 'import xxhash; xxhash.xxh3_128' 2>/dev/null && python=$p
done
[ -n "$python" ] || skip_all "no python3 with xxhash (python3-xxhash)"
PYTHONDONTWRITEBYTECODE=1
export PYTHONDONTWRITEBYTECODE
tap_tmpdir
cd "$tap_tmp" || bail_out "cannot enter $tap_tmp"
