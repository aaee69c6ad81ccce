#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Mended: a reader of the checkpoint format had to guess what its page left out.
# doc/checkpoint-format.md is complete: a reader written from the page alone finds every hash
# right and every byte where it was, in checkpoints of several worlds, shapes and strategies,
# and finds the same damage as accel.
# shellcheck source=tests/t/tap.sh
. "$(dirname "$0")/../t/tap.sh"
# shellcheck source=tests/t/train.sh
. "$(dirname "$0")/../t/train.sh"
# shellcheck source=tests/t/second_reader.sh
. "$(dirname "$0")/../t/second_reader.sh"
accel=$ACCEL_BUILD/accel
page=$ACCEL_SRC/doc/checkpoint-format.md

reader() {
    "$python" "$ACCEL_SRC/tests/helpers/second_reader.py" "$@"
}

# The examples of the page, through the reader.
passes "hashes given on the page" "$python" - "$ACCEL_SRC/tests/helpers" "$page" <<'PY'
import sys
sys.path.insert(0, sys.argv[1])
import second_reader as r, xxhash
rows = 0
for line in open(sys.argv[2]):
    cell = [c.strip().strip("`") for c in line.split("|")[1:-1]]
    if len(cell) != 11 or cell[0] not in ("T", "S"):
        continue
    t = r.Tensor(cell[1], cell[2], r.dims(cell[3]), cell[0] == "S")
    seed = r.Box(t, r.dims(cell[4]), r.dims(cell[5]), 0, 0, 0).seed(int(cell[6]))
    assert f"{seed:016x}" == cell[9], cell
    want = xxhash.xxh3_128_hexdigest(bytes.fromhex(cell[8]), seed=(seed + int(cell[7])) % 2**64)
    assert want == cell[10], cell
    rows += 1
assert rows >= 4, rows
PY

# ---- worlds and shapes ----
passes "checkpoints of all shapes" "$ACCEL_BUILD/tests/helpers/ckpt_shapes" root want
"$ACCEL_BUILD/tests/helpers/ckpt_shapes" again again.want >worlds ||
    bail_out "ckpt_shapes failed"
hdf5=
"$python" -c 'import h5py' 2>/dev/null && hdf5=yes
while read -r step ranks sharding; do
    dir=root/step_$(printf '%08d' "$step")
    what="step $step, $ranks ranks, $sharding"
    like "$(reader extract "$dir" "got/$step" 2>&1)" "^whole: step $step, $ranks files" "$what: every hash"
    passes "$what: every byte" diff -r "want/$step" "got/$step"
    if [ -n "$hdf5" ]; then
        passes "$what: every dataset" reader hdf5 "$dir"
    else
        skip 1 "no h5py"
    fi
done <worlds
passes "accel finds them whole, too" "$accel" ckpt verify --deep root
if [ -n "$hdf5" ]; then
    is "$("$python" - root/step_00000002/*.h5 <<'PY'
import h5py, sys
for path in sys.argv[1:]:
    with h5py.File(path, "r") as f:
        seen = set()
        f.visititems(lambda n, o: seen.add((n.split("@")[0], o.attrs["accel_codes"].decode()))
                     if "accel_codes" in o.attrs else None)
        print(*seen)
PY
    )" "$(printf "('optim/fp8/exp_avg', 'e4m3')\n%.0s" 1 2 3)" "codes of e4m3 say so in every file"
    cp -r root/step_00000002 indexed
    passes "an index of it" "$accel" ckpt index indexed
    is "$("$python" -c 'import h5py
with h5py.File("indexed/index.h5", "r") as f:
    f.visititems(lambda n, o: print(n, o.attrs["accel_codes"].decode()) if "accel_codes" in o.attrs else None)
')" "optim/fp8/exp_avg e4m3" "and in the index"
else
    skip 3 "no h5py"
fi

# ---- names in the root ----
is "$(reader newest root)" step_999999999999 "the newest one"
mv root/step_999999999999 root/step_999999999999.damaged-20260101T000000Z
cp -r root/step_123456789 root/.tmp-step_999999999998.12.0
cp -r root/step_123456789 root/step_0123456789
cp -r root/step_123456789 root/step_999999999997
mkdir root/step_99999999 && : >root/.lock && : >root/history && : >root/requeue.12.0
is "$(reader newest root)" step_123456789 "moved aside, in progress, misspelt, renamed, never finished: skipped"
contains "$("$accel" ckpt ls --json root)" '"state": "complete"' "accel lists the same root"
is "$("$accel" ckpt ls --json root | grep -B4 '"complete"' | sed -n 's/.*"name": "\(.*\)".*/\1/p' |
    head -n 1)" step_123456789 "and has the same newest one"
rm -rf root/step_0123456789 root/step_999999999997
cp -r root/step_00000004 elsewhere
passes "a copy of any other name" reader verify elsewhere

# ---- damage ----
"$python" - again/step_00000002 <<'PY' >flips
import os, random, sys
r = random.Random(5)
for i in range(24):
    name = r.choice(sorted(os.listdir(sys.argv[1])))
    size = os.stat(os.path.join(sys.argv[1], name)).st_size
    print(name, r.randrange(size if i % 2 else min(size, 8192)), 1 << r.randrange(8))
PY
flip() { # FILE BYTE BITS; once more to undo
    "$python" - "$@" <<'PY'
import os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
at = int(sys.argv[2])
os.pwrite(fd, bytes([os.pread(fd, 1, at)[0] ^ int(sys.argv[3])]), at)
PY
}
found=0
both=0
while read -r name at bits; do
    flip "again/step_00000002/$name" "$at" "$bits"
    reader verify again/step_00000002 >out 2>&1
    [ $? -eq 1 ] && grep -q '^refused: ' out && found=$((found + 1))
    "$accel" ckpt verify again/step_00000002 >/dev/null 2>&1
    [ $? -eq 74 ] && both=$((both + 1))
    flip "again/step_00000002/$name" "$at" "$bits"
done <flips
is "$found $both" "24 24" "24 flipped bits: found by the second reader, and by accel"
passes "flipped back: whole" reader verify again/step_00000002

# ---- real runs ----
"$python" - "$page" >keys <<'PY'
import re, sys
part = open(sys.argv[1]).read().split("## Blob `trainer`")[1].split("\n## ")[0]
for line in part.split("\n"):
    if line.startswith("| `"):
        print("\n".join(re.findall("`([a-z_0-9.]+)`", line.split("|")[1])))
PY
train_text text.txt
unset ACCEL_CONFIG ACCEL_CONFIG_RESOLVED CUDA_VISIBLE_DEVICES
OMP_NUM_THREADS=1
export OMP_NUM_THREADS
# run NAME STRATEGY PRECISION RANKS OPTIMIZER
run() {
    train_config "$1.yaml" "$2" "$3" "$4" 1
    out=$(timeout "$HANG_S" "$accel" launch --config "$1.yaml" -n "$4" "$TRAIN" --data text.txt \
        --layers 1 --heads 2 --width 16 --seq 16 --batch 2 --sample 0 --steps 3 \
        --optimizer "$5" --out "$1" 2>&1)
    ok $? "a run: $2, $3, $4 ranks, $5" || diag "$out"
    dir=$1/checkpoints/step_00000003
    like "$(reader extract "$dir" "got.$1" 2>&1)" "^whole: step 3, $4 files" "$1: every hash"
    is "$(sed 's/=.*//' "got.$1/blobs/trainer" | grep -v -x -F -f keys)" "" "$1: no key that the page lacks"
    like "$(cat "got.$1/blobs/trainer")" '^step=3$' "$1: the step"
    like "$(sed -n 's/^run-id //p' "$dir/MANIFEST")" \
        '^run=[^ ]+ model=[0-9a-f]{16} params=[0-9]+ data=[0-9a-f]{16} seed=[0-9]+$' "$1: the run-id"
    is "$(cd "got.$1/tensors" && find . -path './optim/*' -type f | sed 's|.*/||' | sort -u | tr '\n' ' ')" \
        "$6" "$1: the optimizer's state"
    is "$(cd "got.$1/tensors" && ls)" "$(printf 'model\noptim')" "$1: nothing else"
}
run full FULL_SHARD bf16 2 adamw "exp_avg exp_avg_sq "
run none NO_SHARD no 2 sgd "momentum_buffer "
run alone FULL_SHARD no 1 lion "exp_avg "
cat got.*/blobs/trainer | sed 's/=.*//' | sort -u >used
is "$(grep -v -x -F -f used keys | grep -v '^group_')" "" "and no key of the page that none of them has"
done_testing
