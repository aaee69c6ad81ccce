#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Other HDF5 libraries than the one of this build: h5dump and a later h5py read whole tensors of
# every dtype in index.h5; and shard files that the later library wrote are taken by accel.
# $ACCEL_PEERS_PYTHON has the later one, 1.14 or above (scripts/install-deps --peers DIR).
# shellcheck source=tests/t/tap.sh
. "$(dirname "$0")/tap.sh"

tap_tmpdir
cd "$tap_tmp" || bail_out "cannot enter $tap_tmp"
accel=$ACCEL_BUILD/accel
"$ACCEL_BUILD/tests/helpers/ckpt_shapes" root want >worlds || bail_out "ckpt_shapes failed"
for from in root/step_*; do
    "$accel" ckpt index "$from" >/dev/null 2>&1 || skip_all "built without HDF5"
done

# ---- h5dump ----
if command -v h5dump >/dev/null 2>&1; then
    wrong='' count=0
    for step in 1 2 123456789; do
        index=$(printf 'root/step_%08d/index.h5' "$step")
        for name in model/two-pieces model/one-more model/wide model/tall model/cube model/eight \
            model/one optim/tall/exp_avg x; do
            rm -f dumped
            h5dump -d "/$name" -b FILE -o dumped "$index" >said 2>&1
            cmp -s dumped "want/$step/tensors/$name" || wrong="$wrong $step/$name"
            count=$((count + 1))
        done
    done
    is "$wrong" "" "h5dump reads whole tensors in the index ($count of them)"
    like "$(h5dump -d /x root/step_00000001/index.h5 2>&1)" 'DATATYPE +H5T_IEEE_F32LE' "and shows them as numbers"
else
    skip 2 "no h5dump (hdf5-tools)"
fi

# ---- a later library ----
PYTHONDONTWRITEBYTECODE=1
export PYTHONDONTWRITEBYTECODE
later=${ACCEL_PEERS_PYTHON:-python3}
hashes=
for p in python3 /usr/bin/python3; do
    "$p" -c 'import xxhash' 2>/dev/null && hashes=$p
done
if ! "$later" -c 'import h5py, sys; sys.exit(h5py.version.hdf5_version_tuple < (1, 14, 0))' 2>/dev/null; then
    skip 4 "no h5py with HDF5 1.14 or above in $later (set ACCEL_PEERS_PYTHON)"
elif [ -z "$hashes" ]; then
    skip 4 "no python3-xxhash"
else
    cat >read.py <<'PY'
# Bytes of every tensor in every index, as HDF5 has them, beside those that were saved.
import os, h5py, numpy as np
for step in os.listdir("want"):
    base, index = f"want/{step}/tensors", h5py.File(f"root/step_{int(step):08d}/index.h5")
    for path in (os.path.join(p, f) for p, _, fs in os.walk(base) for f in fs):
        whole, raw = index[os.path.relpath(path, base)], open(path, "rb").read()
        got = bytearray(len(raw))
        if raw:
            kind = whole.id.get_type()
            whole.id.read(h5py.h5s.ALL, h5py.h5s.ALL, np.frombuffer(got, "V%d" % kind.get_size()).reshape(
                whole.shape), mtype=kind)
        assert got == raw, path
print(h5py.version.hdf5_version)
PY
    passes "it reads every tensor of every dtype in the index" "$later" read.py
    diag "HDF5 $tap_out"
    cat >write.py <<'PY'
# Each shard file of root/step_N once more as again/step_N/FILE, by this library: the same objects,
# elsewhere. Prints where each dataset lies, and the sizes.
import os, h5py, numpy as np
for step in sorted(os.listdir("root")):
    if not step.startswith("step_"):
        continue
    os.makedirs(f"again/{step}")
    for name in sorted(os.listdir(f"root/{step}")):
        if not name.startswith("rank_"):
            continue
        path = f"again/{step}/{name}"
        with h5py.File(f"root/{step}/{name}", "r") as old, h5py.File(path, "w", libver=("v110", "v110")) as new:
            for key in old:
                h5py.h5o.copy(old.id, key.encode(), new.id, key.encode())
            for key in old.attrs:
                kind, space = old.attrs.get_id(key).get_type(), old.attrs.get_id(key).get_space()
                h5py.h5a.create(new.id, key.encode(), kind, space).write(np.array(old.attrs[key]))
            places = []
            new.visititems(lambda n, o: places.append((n, o)) if isinstance(o, h5py.Dataset) else None)
            places = [(n, o.id.get_offset(), o.id.get_storage_size()) for n, o in places]
        for place in places:
            print(step, name, *place)
        print(step, name, "-", os.path.getsize(path), 0)
PY
    "$later" write.py >places 2>said || diag "$(tail -n 3 said)"
    cat >manifest.py <<'PY'
# MANIFESTs for again/: those of root/ with other places, sizes and hashes of the structures.
import xxhash
place = {}
for line in open("places"):
    step, name, tensor, at, size = line.split(" ")
    place[step, name, tensor] = int(at), int(size)
for step in sorted({key[0] for key in place}):
    lines, files, used, n = open(f"root/{step}/MANIFEST").read().split("\n")[:-2], [], {}, int(step[5:])
    for i, line in enumerate(lines):
        word = line.split(" ")
        if word[0] == "F":
            files.append((i, word[1]))
        elif word[0] in "TS" and len(word) > 2:
            tensor, seen = ("" if word[0] == "T" else "state/") + word[1], {}
        elif word[0] == "B":
            name = files[int(word[3])][1]
            k = seen.get(name, 0)
            seen[name] = k + 1
            at, size = place[step, name, tensor + (f"@{k}" if k else "")]
            assert size == int(word[5]), line
            used.setdefault(name, []).append((at, size))
            word[4] = str(at)
            lines[i] = " ".join(word)
    for i, name in files:
        data, end = open(f"again/{step}/{name}", "rb").read(), 0
        h = xxhash.xxh3_128(seed=(xxhash.xxh3_64_intdigest(name) + n) % 2**64)
        for at, size in sorted(used.get(name, [])):
            h.update(data[end:at])
            end = at + size
        h.update(data[end:])
        lines[i] = f"F {name} {len(data)} {h.hexdigest()}"
    text = "\n".join(lines) + "\n"
    open(f"again/{step}/MANIFEST", "w").write(text + "X " + xxhash.xxh3_128_hexdigest(text) + "\n")
PY
    passes "its files are put under a MANIFEST" "$hashes" manifest.py
    passes "accel finds all of them whole, and their structures right" "$accel" ckpt verify --deep again
    wrong=
    for step in again/step_*; do
        cmp -s "$step/MANIFEST" "root/${step##*/}/MANIFEST" && wrong="$wrong $step is the same"
        "$accel" ckpt diff "$step" "root/${step##*/}" >said 2>&1 || wrong="$wrong $step: $(tail -n 1 said)"
    done
    is "$wrong" "" "with the bits that were saved"
fi
done_testing
