#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Shard files are plain HDF5: h5py finds module paths, dtypes, attributes and the right
# bytes; `accel ckpt ls` and `verify` agree with it and name what is damaged.
# shellcheck source=tests/t/tap.sh
. "$(dirname "$0")/tap.sh"

tap_tmpdir
accel=$ACCEL_BUILD/accel
root=$tap_tmp/root
passes "a save" "$ACCEL_BUILD/tests/faults/ckpt_once" save "$root" 7 2
# The distribution's python has the distribution's h5py, whatever comes first in PATH.
python=
for p in python3 /usr/bin/python3; do
    "$p" -c 'import h5py, numpy' 2>/dev/null && python=$p
done
if [ -n "$python" ]; then
    passes "h5py reads it" env PYTHONDONTWRITEBYTECODE=1 "$python" - "$root/step_00000007" <<'PY'
import sys, h5py, numpy as np
d = sys.argv[1]
rows = np.zeros(3 * 1500007, np.uint8)
for rank in range(2):
    f = h5py.File(f"{d}/rank_{rank:05d}-of-00002.h5", "r")
    assert f.attrs["step"] == 7 and f.attrs["rank"] == rank and f.attrs["world_size"] == 2
    names = []
    f.visit(names.append)
    for name in names:
        if name == "model/one": # whole in one file
            assert "offset" not in f[name].attrs and f[name].shape == (1,)
        if name.split("@")[0] != "model/wide":
            continue
        ds = f[name]
        assert list(ds.attrs["global_shape"]) == [3, 1500007]
        assert ds.attrs["accel_dtype"] == b"uint8", ds.attrs["accel_dtype"]
        start = int(ds.attrs["offset"][0]) * 1500007 + int(ds.attrs["offset"][1])
        rows[start:start + ds.size] = ds[...].ravel()
    assert f["model/h.0.attn.bias"].dtype == np.float32 and f["model/wte.weight"].ndim == 2
x = np.arange(rows.size, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
x += np.uint64(6 * 77 + 7 * 131)
want = ((x ^ (x >> np.uint64(23)) ^ (x >> np.uint64(47))) & np.uint64(255)).astype(np.uint8)
assert (rows == want).all()
PY
else
    skip 1 "no h5py"
fi
out=$("$accel" ckpt ls "$root")
is $? 0 "accel ckpt ls exits 0"
like "$out" 'step_00000007 +7 +2 .*complete' "and lists the checkpoint"
out=$("$accel" ckpt ls --json "$root/step_00000007/")
like "$out" '"step": 7,' "one checkpoint, as JSON with numbers"
like "$out" '"size": [0-9]+,' "and its size in bytes"
mkdir "$tap_tmp/empty"
like "$("$accel" ckpt ls "$tap_tmp/empty" 2>&1)" '^no checkpoints in ' "an empty directory is said to be empty"
"$accel" ckpt verify "$tap_tmp/empty" 2>/dev/null
is $? 66 "and is nothing that verify finds whole"
"$ACCEL_BUILD/tests/faults/ckpt_once" save "$root" 8 2
is "$("$accel" ckpt verify "$root" | grep -c whole)" 2 "verify looks at every step"
rm -r "$root/step_00000008"
out=$("$accel" ckpt verify --deep "$root")
is $? 0 "accel ckpt verify --deep exits 0 on a whole one"
like "$out" 'step_00000007 +whole' "and says so"
file=$root/step_00000007/rank_00001-of-00002.h5
printf 'X' | dd of="$file" bs=1 seek=2000000 conv=notrunc 2>/dev/null
out=$("$accel" ckpt verify --json "$root/step_00000007")
is $? 74 "a damaged byte: verify exits 74"
like "$out" 'rank_00001-of-00002.h5.*tensor (model|optim)/' "naming file and tensor"
"$accel" ckpt verify "$root/no-such" 2>/dev/null
is $? 66 "a missing directory exits 66"
done_testing
