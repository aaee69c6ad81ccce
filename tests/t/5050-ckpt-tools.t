#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The tools of checkpoints: show, diff, export, import, merge, split, index, prune, repair.
# What they write holds the same bits as what they read, in worlds and shapes of every kind;
# nothing is replaced, and damaged or forged input is refused.
# shellcheck source=tests/t/tap.sh
. "$(dirname "$0")/tap.sh"

tap_tmpdir
cd "$tap_tmp" || bail_out "cannot enter $tap_tmp"
accel=$ACCEL_BUILD/accel
old=$ACCEL_SRC/tests/data/checkpoint-0.1/checkpoints
"$ACCEL_BUILD/tests/helpers/ckpt_shapes" root want >worlds || bail_out "ckpt_shapes failed"

# code WANT DESCRIPTION COMMAND...: its exit status; its output is in $out
code() {
    code_want=$1 code_what=$2
    shift 2
    out=$("$@" 2>&1)
    is $? "$code_want" "$code_what" || diag "$out"
}
# What is in a directory.
names() {
    find "$1" -mindepth 1 -maxdepth 1 -printf '%f\n' | LC_ALL=C sort | tr '\n' ' '
}
# Is a directory as it was before the last command, which was to fail?
state() {
    (cd "$1" && find . | sort && find . -type f -exec cksum {} + | sort)
}

# ---- show ----
code 0 "show takes the newest of a directory" "$accel" ckpt show root
like "$out" '^step +999999999999$' "and says its step"
like "$out" '^ranks +3, HYBRID_SHARD_ZERO2$' "its ranks"
like "$out" '^model/cube +int32 +5x7x11 +1.5 KiB +1 [0-2]$' "its tensors"
like "$out" '^model/scalar.f32 +float32 +- +4 B +1 [0-2]$' "a scalar"
like "$out" '^model/empty +float32 +0 +0 B +0 *$' "an empty one"
like "$out" '^rank_00002-of-00003.h5 ' "its files"
code 0 "show as JSON" "$accel" ckpt show --json root/step_00000002
like "$out" '"run_id": " a run: with  blanks "' "the run"
like "$out" '"last_file": 2' "and where tensors end"
code 0 "show of a run's" "$accel" ckpt show "$old"
like "$out" '^optimizer +adamw *$' "lists the state beside tensors"
like "$("$accel" ckpt show --json "$old" | tr -d ' \n')" '"state":\[\{"kind":"optimizer","name":"","what":"adamw"\}\]' \
    "as JSON, too"
code 66 "show of nothing" "$accel" ckpt show "$tap_tmp/none"

# ---- diff ----
code 0 "a checkpoint is equal to itself" "$accel" ckpt diff root/step_00000001 root/step_00000001
is "$out" "" "and nothing is said"
code 1 "two steps differ" "$accel" ckpt diff root/step_00000001 root/step_00000002
like "$out" '^model/cube +values +385 0x0x0 +[-0-9]+ +[-0-9]+ *$' "with counts, the first place and its values"
like "$out" '^deep/er/large +blob .*2097159 bytes' "and blobs"
unlike "$out" '^model/empty' "what is empty does not differ"
# first STEP NAME MANTISSA BIAS: the first element of a tensor of 8-bit floats, decoded
first() {
    od -An -tu1 -N1 "want/$1/tensors/$2" | awk -v m="$3" -v bias="$4" '{
        code = $1 % 128; e = int(code / 2^m); f = code % 2^m / 2^m
        printf "%.17g", ($1 >= 128 ? -1 : 1) * (e ? (1 + f) * 2^(e - bias) : f * 2^(1 - bias)) }'
}
like "$out" "^model/narrow.e4m3 +values +[0-9]+ 0x0 +$(first 1 model/narrow.e4m3 3 7) +$(first 2 model/narrow.e4m3 3 7) " \
    "e4m3 as numbers"
like "$out" "^model/narrow.e5m2 +values +[0-9]+ 0x0x0 +$(first 1 model/narrow.e5m2 2 15) +$(first 2 model/narrow.e5m2 2 15) " \
    "and e5m2"
like "$out" "^model/bytes +values +[0-9]+ 0x0 +$(od -An -td1 -N1 want/1/tensors/model/bytes | tr -d ' ') +$(od -An -td1 -N1 want/2/tensors/model/bytes | tr -d ' ') " \
    "and int8"
code 64 "a tolerance is a number" "$accel" ckpt diff --tol=-1 root root
code 64 "an option of another verb" "$accel" ckpt show --tol=1 root
code 64 "the program that writes, by itself" "$ACCEL_BUILD/accel-rewrite"

# floats OUT.safetensors NAME VALUE...: a file of one F32 tensor, from its values in octal
floats() {
    floats_header="{\"$2\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]}}"
    while [ $((${#floats_header} % 8)) != 0 ]; do floats_header="$floats_header "; done
    # shellcheck disable=SC2059 # the length and the values are escapes
    {
        printf "\\$(printf '%03o' ${#floats_header})\\0\\0\\0\\0\\0\\0\\0"
        printf '%s' "$floats_header"
        printf "$3"
    } >"$1"
}
# 1, 2, 3; then 1, 2.5, 3; then 1, NaN, 3
floats a.safetensors w '\0\0\200\77\0\0\0\100\0\0\100\100'
floats b.safetensors w '\0\0\200\77\0\0\40\100\0\0\100\100'
floats n.safetensors w '\0\0\200\77\0\0\300\177\0\0\100\100'
floats v.safetensors v '\0\0\200\77\0\0\0\100\0\0\100\100'
for f in a b n v; do
    code 0 "import $f" "$accel" ckpt import $f.safetensors in.$f
done
code 1 "half apart" "$accel" ckpt diff in.a in.b
like "$out" '^model/w +values +1 1 +2 2.5 +0.5$' "is said with both values"
code 1 "more than a tolerance" "$accel" ckpt diff --tol 0.49 in.a in.b
code 0 "within a tolerance" "$accel" ckpt diff --tol 0.5 in.a in.b
code 1 "NaN is beyond every tolerance" "$accel" ckpt diff --tol 1e30 in.a in.n
like "$out" ' inf$' "and infinitely far"
code 0 "a NaN is equal to itself" "$accel" ckpt diff in.n in.n
code 1 "other names" "$accel" ckpt diff in.a in.v
like "$out" '^model/v +missing +missing there *$' "one is missing here"
like "$out" '^model/w +missing +there +missing *$' "one is missing there"

# ---- split, merge ----
while read -r step ranks _; do
    from=root/step_$(printf '%08d' "$step")
    "$accel" ckpt merge "$from" one."$step" >/dev/null 2>&1
    "$accel" ckpt split "one.$step" five."$step" --shards 5 >/dev/null 2>&1
    passes "step $step of $ranks ranks, merged and split: every bit" "$accel" ckpt diff "$from" "five.$step"
    passes "  every hash of the merged" "$accel" ckpt verify "one.$step"
    passes "  every hash of the split" "$accel" ckpt verify "five.$step"
done <worlds
code 0 "split as JSON" "$accel" ckpt split --json root/step_00000002 json --shards 3
is "$out" "{\"step\": 2, \"tensors\": $("$accel" ckpt show --json root/step_00000002 | grep -c '"dtype"'), \"bytes\": $("$accel" ckpt show --json root/step_00000002 |
    sed -n '/"tensors"/,$s/^ *"bytes": \([0-9]*\).*/\1/p' | awk '{ s += $1 } END { print s }'), \"files\": 3}" \
    "has its numbers"
is "$(ls one.1/step_00000001)" "MANIFEST
rank_00000-of-00001.h5" "merge makes one file"
is "$(find five.1/step_00000001 -type f | wc -l)" 6 "split makes five"
before=$(state one.1)
code 73 "a step that is there is not replaced" "$accel" ckpt split root/step_00000001 one.1 --shards 2
is "$(state one.1)" "$before" "nor touched"
code 64 "split without a number" "$accel" ckpt split root other
code 64 "split into none" "$accel" ckpt split root other --shards 0
[ ! -e other ]
ok $? "a wrong command makes nothing"

# ---- export, import ----
code 0 "export of a real run" "$accel" ckpt export "$old" weights
code 0 "import" "$accel" ckpt import weights again --shards 3
code 0 "export of that" "$accel" ckpt export again weights2
passes "the same bits" cmp weights/model.safetensors weights2/model.safetensors
passes "the imported one verifies" "$accel" ckpt verify again
code 0 "export in parts" "$accel" ckpt export --shard-size 1KB "$old" parts
[ -f parts/model.safetensors.index.json ]
ok $? "has an index"
"$accel" ckpt import parts again2 >/dev/null 2>&1
passes "and is read back" "$accel" ckpt diff again again2
code 0 "export of everything" "$accel" ckpt export --all root/step_00000002 all
like "$(head -c 3000 all/model.safetensors | tr -d '\0')" '"model/wide":{"dtype":"BF16","shape":\[3,500009\]' \
    "has dtypes as they are"
like "$(head -c 3000 all/model.safetensors | tr -d '\0')" '"model/narrow.e5m2":{"dtype":"F8_E5M2","shape":\[3,5,77\]' \
    "8-bit floats, too"
code 73 "weights that are there stay" "$accel" ckpt export "$old" weights
code 65 "a weight of another dtype" "$accel" ckpt export root/step_00000002 other
code 64 "another model" "$accel" ckpt export --hf t5 "$old" other
code 64 "--all keeps dtypes" "$accel" ckpt export --all --dtype float16 "$old" other
code 0 "in 16 bits" "$accel" ckpt export --dtype bfloat16 "$old" half
[ "$(wc -c <half/model.safetensors)" -lt "$(wc -c <weights/model.safetensors)" ]
ok $? "is smaller"
# GPT-2's c_attn is stored [in, out] by Hugging Face: 8x24 there, 24x8 here.
code 0 "as Hugging Face has it" "$accel" ckpt export --hf gpt2 "$old" hf
like "$(head -c 3000 hf/model.safetensors | tr -d '\0')" \
    '"transformer.h.0.attn.c_attn.weight":{"dtype":"F32","shape":\[8,24\]' "names and layouts"
like "$(head -c 3000 weights/model.safetensors | tr -d '\0')" \
    '"h.0.attn.c_attn.weight":{"dtype":"F32","shape":\[24,8\]' "which are ours without --hf"
head -c 70 a.safetensors >cut.safetensors
code 74 "a cut file is not imported" "$accel" ckpt import cut.safetensors other
[ ! -e other ]
ok $? "nor anything made"

# ---- merge-weights ----
code 0 "merge-weights" "$accel" merge-weights "$old" merged
passes "writes what export writes" cmp merged/model.safetensors weights/model.safetensors
code 73 "weights that are there stay" "$accel" merge-weights "$old" merged
code 64 "weights are not pickled" "$accel" merge-weights --unsafe_serialization "$old" merged2
code 64 "it takes two directories" "$accel" merge-weights "$old"
code 66 "of which one is there" "$accel" merge-weights none merged2
mkdir once
cp -r "$old"/step_* once
chmod -R u+w once
code 0 "merge-weights that deletes" "$accel" merge-weights --remove_checkpoint_dir once merged2
passes "writes the same" cmp merged2/model.safetensors weights/model.safetensors
is "$(names once)" "" "and leaves no checkpoint"
cp -r "$old"/step_* once
chmod -R u+w once
code 73 "one that fails" "$accel" merge-weights --remove_checkpoint_dir once merged2
is "$(names once)" "step_00000004 " "deletes nothing"

# ---- files beside those of a checkpoint ----
cp -r once beside
echo note >beside/step_00000004/README
ln beside/step_00000004/rank_00000-of-00002.h5 beside/step_00000004/rank_00002-of-00002.h5
ln -s /etc/passwd "beside/step_00000004/odd$(printf '\t')name"
code 0 "files that are not the checkpoint's are no damage" "$accel" ckpt verify beside
is "$(printf '%s\n' "$out" | awk '$2 == "foreign" { print $3 }' | sort | tr '\n' ' ')" \
    "README odd?name rank_00002-of-00002.h5 " "but are named"
like "$out" 'step_00000004 whole' "beside the verdict"
code 0 "as JSON" "$accel" ckpt verify --json beside/step_00000004
is "$(printf '%s\n' "$out" | jq -r '[.verified[].state] | sort | unique | join(" ")')" \
    "foreign whole" "with a state of their own"

# ---- bars on a terminal ----
if command -v script >/dev/null 2>&1; then
    # drawn COMMAND...: what it draws on a terminal's stderr
    drawn() {
        script -qec "$* >/dev/null" /dev/null </dev/null 2>/dev/null | tr '\r' '\n' | grep -c '\[#* *\] *[0-9]* %'
    }
    mkdir bars
    cp -r once/step_* bars
    for command in "verify bars" "repair bars" "prune --keep 1 --dry-run bars" "index bars/step_00000004" \
        "diff bars/step_00000004 once/step_00000004" "split --shards 2 bars/step_00000004 bars2" \
        "merge bars/step_00000004 bars3" "export bars/step_00000004 bars4" \
        "import a.safetensors bars5"; do
        [ "$(drawn "$accel" ckpt "$command")" -ge 1 ]
        ok $? "${command%% *} draws a bar"
    done
    is "$(drawn "$accel" ckpt verify --json bars)" 0 "but not beside JSON"
    is "$("$accel" ckpt verify bars 2>&1 >/dev/null)" "" "nor elsewhere than on a terminal"
else
    skip 11 "no script"
fi

# ---- index ----
for from in root/step_*; do "$accel" ckpt index "$from" >/dev/null 2>&1; done
code 0 "all indexes agree with their manifests" "$accel" ckpt verify --deep root
is "$(printf '%s\n' "$out" | grep -c ' whole')" 7 "which are seven"
code 73 "an index that is there is not replaced" "$accel" ckpt index root/step_00000002
rm root/step_00000003/index.h5
code 0 "an index as JSON" "$accel" ckpt index --json root/step_00000003
like "$out" '^\{"step": 3, "tensors": [0-9]+\}$' "has its numbers"
cp root/step_00000002/index.h5 kept.h5
for other in root/step_00000001/index.h5 root/step_00000002/rank_00000-of-00003.h5 a.safetensors; do
    cp $other root/step_00000002/index.h5
    code 74 "another file as the index: ${other##*/}" "$accel" ckpt verify --deep root/step_00000002
    like "$out" 'index.h5' "is named"
done
rm root/step_00000002/index.h5
ln -s "$tap_tmp/kept.h5" root/step_00000002/index.h5
code 74 "a link as the index" "$accel" ckpt verify --deep root/step_00000002
rm root/step_00000002/index.h5
python=
for p in python3 /usr/bin/python3; do
    "$p" -c 'import h5py, numpy' 2>/dev/null && python=$p
done
if [ -n "$python" ]; then
    cp kept.h5 root/step_00000002/index.h5
    cat >compare.py <<'PY'
import os, sys, h5py, numpy as np
sys.path.insert(0, sys.argv[1])
from read_checkpoint import read_checkpoint
kinds = {"float32": "<f4", "int32": "<i4", "uint16": "<u2", "uint8": "u1", "float64": "<f8", "int64": "<i8",
         "int8": "i1", "e4m3": "u1", "float16": "<f2"}
for step in os.listdir("want"):
    directory = f"root/step_{int(step):08d}"
    base, index, read = f"want/{step}/tensors", h5py.File(f"{directory}/index.h5"), read_checkpoint(directory)
    for path in (os.path.join(p, f) for p, _, fs in os.walk(base) for f in fs):
        name, raw = os.path.relpath(path, base), open(path, "rb").read()
        whole = index[name]
        dtype = whole.attrs["accel_dtype"].decode().rstrip("\0")
        if dtype == "bfloat16":  # shown as float32
            want = (np.frombuffer(raw, "<u2").astype("<u4") << 16).view("<f4")
        elif dtype == "e5m2":  # the upper half of a float16
            want = (np.frombuffer(raw, "u1").astype("<u2") << 8).view("<f2")
        else:
            want = np.frombuffer(raw, kinds[dtype])
        want = want.reshape(whole.shape)
        for got in (whole[()], read.get(name)):
            if got is None:  # in no shard file
                assert want.size == 0, name
            else:
                assert np.array_equal(got, want, equal_nan=want.dtype.kind == "f"), name
PY
    passes "h5py sees every tensor of every dtype in the index, and examples/read_checkpoint.py in the shards" \
        env PYTHONDONTWRITEBYTECODE=1 "$python" compare.py "$ACCEL_SRC/examples"
    mv root/step_00000002 moved
    mv moved/rank_00001-of-00003.h5 gone.h5
    passes "a moved directory is read, and a missing file is NaN" "$python" -c '
import h5py, numpy as np
a = h5py.File("moved/index.h5")["model/two-pieces"][()]
# some of the bits that the test stores are NaN, but not a quarter of them
assert a.size / 4 < np.isnan(a).sum() < a.size, np.isnan(a).sum()
half = h5py.File("moved/index.h5")["model/narrow.e5m2"][()]
assert half.size / 4 < np.isnan(half).sum() < half.size, np.isnan(half).sum()
code = h5py.File("moved/index.h5")["model/narrow.e4m3"][()]
assert code.size / 4 < (code == 0x7f).sum() < code.size, (code == 0x7f).sum()'
    mv gone.h5 moved/rank_00001-of-00003.h5
    passes "a dataset is added to the index" "$python" -c '
import h5py
with h5py.File("moved/index.h5", "r+") as f:
    f["stranger"] = 1'
    code 74 "a stranger in the index" "$accel" ckpt verify --deep moved
    like "$out" 'has other entries' "is named"
    cp kept.h5 moved/index.h5
    passes "a part is mapped to another place" "$python" -c '
import h5py
with h5py.File("moved/index.h5", "r+") as f:
    name = "model/one-more"
    n, parts = f[name].shape[0], f[name].virtual_sources()
    layout = h5py.VirtualLayout((n,), "u1")
    at = 1
    for p in parts:
        size = p.src_space.get_select_npoints()
        to = min(at, n - size)
        layout[to:to + size] = h5py.VirtualSource(p.file_name, p.dset_name, (size,))[0:size]
        at += size
    del f[name]
    f.create_virtual_dataset(name, layout)'
    code 74 "a mapping to another place" "$accel" ckpt verify --deep moved
    like "$out" 'index.h5: model/one-more: a mapping differs' "is named"
    for change in 'a["accel_dtype"] = np.bytes_("int64")' 'del a["accel_dtype"]' \
        'a.create("accel_dtype", b"float32".ljust(15, b"\0"), dtype="S15")' \
        'a["accel_codes"] = 1'; do
        cp kept.h5 moved/index.h5
        passes "attributes: $change" "$python" -c "
import h5py, numpy as np
with h5py.File('moved/index.h5', 'r+') as f:
    a = f['model/two-pieces'].attrs
    $change"
        code 74 "another attribute" "$accel" ckpt verify --deep moved
        like "$out" 'index.h5: model/two-pieces: .*attribute' "is named"
    done
    cp kept.h5 moved/index.h5
    code 0 "as it was" "$accel" ckpt verify --deep moved
else
    skip 1 "no h5py"
fi

# ---- prune, repair ----
for step in 1 2 3 4 5 6 7; do
    "$ACCEL_BUILD/tests/faults/ckpt_once" save part "$step" 1
    mkdir -p many
    mv part/step_0000000$step many
done
before=$(state many)
code 64 "prune without a number" "$accel" ckpt prune many
code 0 "a dry run" "$accel" ckpt prune many --keep 2 --every 3 --dry-run
is "$(printf '%s\n' "$out" | grep -c 'would go')" 4 "says what would go"
is "$(state many)" "$before" "and touches nothing"
code 0 "prune" "$accel" ckpt prune many --keep 2 --every 3
is "$(names many)" "step_00000003 step_00000006 step_00000007 " "the newest two and the multiples stay"
# step 7 is damaged now: 6 and 3 are the two whole ones
printf 'X' | dd of=many/step_00000007/rank_00000-of-00001.h5 bs=1 seek=2000000 conv=notrunc 2>/dev/null
code 0 "prune to one" "$accel" ckpt prune many --keep 1
is "$(names many)" "step_00000003 step_00000006 step_00000007 " "two whole ones stay"
code 64 "the best of nothing" "$accel" ckpt prune many --keep 2 --best 1
code 64 "a mode is min or max" "$accel" ckpt prune many --keep 2 --mode most
mkdir many/.tmp-step_00000009.17.0 many/.trash-step_00000001.0 many/.tmp-step_00000008.18.0 many/own
: >many/.tmp-step_00000009.17.0/rank_00000-of-00001.h5
before=$(state many)
exec 9<many/.tmp-step_00000008.18.0
flock -n 9 || bail_out "no flock"
code 0 "a dry repair" "$accel" ckpt repair many --dry-run
is "$(state many)" "$before" "touches nothing"
code 0 "repair" "$accel" ckpt repair many
exec 9<&-
like "$out" '^\.tmp-step_00000009.17.0 +removed ' "a torn save goes"
like "$out" '^\.tmp-step_00000008.18.0 +left ' "one that is worked on stays"
like "$out" '^step_00000007 +moved aside ' "a damaged one is moved aside"
is "$(names many | sed 's/-2[^ ]*//')" \
    ".tmp-step_00000008.18.0 own step_00000003 step_00000006 step_00000007.damaged " "the rest is there"
code 0 "what is left verifies" "$accel" ckpt verify many

# ---- more files than descriptors ----
few() {
    # shellcheck disable=SC3045 # dash and bash have it
    (ulimit -n 24 && exec "$@")
}
code 0 "200 files" "$accel" ckpt split root/step_00000001 wide --shards 200
code 0 "are verified with 24 descriptors" few "$accel" ckpt verify --deep wide
code 0 "and read, all of them" few "$accel" ckpt merge wide narrow
code 0 "with the same bits" "$accel" ckpt diff narrow root/step_00000001

# ---- damage ----
cp -r root/step_00000001 bad
printf 'X' | dd of=bad/rank_00001-of-00002.h5 bs=1 seek=2000000 conv=notrunc 2>/dev/null
code 74 "a damaged one is not merged" "$accel" ckpt merge bad other
[ ! -e other ]
ok $? "and leaves nothing"
code 74 "nor compared" "$accel" ckpt diff bad root/step_00000001
code 74 "nor exported" "$accel" ckpt export --all bad other2
[ ! -e other2 ]
ok $? "and leaves nothing"
mkdir other2
code 74 "nor exported to a directory that is there" "$accel" ckpt export --all bad other2
[ -d other2 ]
ok $? "which stays"
done_testing
