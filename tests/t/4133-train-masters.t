#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Narrow master weights in whole trainings of one process: the losses of a GPT-2-shaped model
# beside those of float32 masters after 300 steps, the plan, checkpoints of both forms, weights
# written and read, and refusals.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/t/train.sh
. "$(dirname "$0")/train.sh"
train_alone
OMP_NUM_THREADS=1
export OMP_NUM_THREADS
accel=$ACCEL_BUILD/accel
MODEL="--layers 2 --heads 2 --width 64 --seq 32 --warmup 10 --sample 0 --batch 4 --data text.txt"

# go DIR PRECISION MASTERS WORDS
go() {
    train_config "$1.yaml" FULL_SHARD "'$2'" 1 1 "precision: {masters: $3}"
    # shellcheck disable=SC2086 # MODEL and WORDS are lists of words
    ACCEL_CONFIG=$1.yaml timeout "$HANG_S" "$TRAIN" $MODEL $4 --out "$1" >"$1.log" 2>&1
}

# near DIR DIR PART WHAT: the means of their last 50 losses differ by less than that part
near() {
    for dir in "$1" "$2"; do
        losses "$dir/log.jsonl" | tail -n 50 | awk '{ sum += $2 } END { print sum / NR }'
    done | paste - - | awk -v part="$3" '{ d = $2 / $1 - 1; print "# " $1 " and " $2
        exit !($1 > 0 && d < part && d > -part) }'
    ok $? "$4"
}

go wide bf16 float32 "--steps 300"
ok $? "bf16 with float32 masters" || diag "$(tail -n 3 wide.log)"
for masters in bf16 none; do
    go "$masters" bf16 "$masters" "--steps 300"
    ok $? "masters: $masters" || diag "$(tail -n 3 "$masters.log")"
    same_bits wide/log.jsonl "$masters/log.jsonl"
    isnt $? 0 "has other numbers"
done
near wide bf16 0.01 "after 300 steps masters in bf16 are within 1 %"
go half bf16 fp16 "--steps 300"
ok $? "masters: fp16" || diag "$(tail -n 3 half.log)"
near wide half 0.01 "and so are those in fp16"
same_bits none/log.jsonl bf16/log.jsonl
isnt $? 0 "stochastic rounding is not rounding to the nearest"
go again bf16 bf16 "--steps 300"
same_bits again/log.jsonl bf16/log.jsonl
ok $? "draws are the same in the next run"

like "$(cat wide.log)" 'masters +float32, as FSDP in this precision and DeepSpeed' "the plan says what holds"
like "$(cat bf16.log)" 'masters +bf16, rounded stochastically' "of bf16"
like "$(cat none.log)" 'masters +none: bf16 weights, to the nearest, as FSDP without' "and of none"
like "$(cat half.log)" 'masters +fp16 with scales, rounded stochastically' "and of fp16"
like "$(cat bf16.log)" 'precision +bf16 compute and wire, float32 sums' "without float32 masters"
number() { # DIR ROW: of the plan, in KiB
    sed -n -E "s/.* $2 +([0-9.]+) ([KM])iB.*/\\1 \\2/p" "$1.log" |
        awk 'NR == 1 { print $1 * ($2 == "M" ? 1024 : 1) }'
}
echo "$(number wide '  parameters') $(number bf16 '  parameters')" |
    awk '{ print "# " $0; exit !($1 / $2 > 1.98 && $1 / $2 < 2.02) }'
ok $? "masters take half the bytes"
echo "$(number wide '  parameters') $(number half '  parameters')" |
    awk '{ print "# " $0; exit !($1 / $2 > 1.96 && $1 / $2 < 1.98) }'
ok $? "in fp16 a byte more for every 32"
like "$(cat half.log)" 'gather ring .* two largest units' "whose copies for ops come two at a time"
unlike "$(cat bf16.log)" 'gather ring' "and no copy beside them"
like "$(cat wide.log)" 'gather ring' "which float32 masters have"

go bf16 bf16 float32 "--steps 302"
ok $? "a checkpoint of bf16 goes on with float32 masters" || diag "$(tail -n 3 bf16.log)"
like "$(cat bf16.log)" 'resuming with masters = float32 \(the checkpoint had bfloat16\)' "and says so"
go bf16 bf16 bf16 "--steps 304"
ok $? "and back in bf16" || diag "$(tail -n 3 bf16.log)"
like "$(cat bf16.log)" 'resuming with masters = bfloat16 \(the checkpoint had float32\): weights were rounded' \
    "and says what is lost"
go bf16 bf16 none "--steps 306"
ok $? "and without masters" || diag "$(tail -n 3 bf16.log)"
like "$(cat bf16.log)" 'resuming with masters = none \(the checkpoint had bf16\)$' "which loses nothing"
near wide bf16 0.02 "and the loss stays where it was"

go half bf16 float32 "--steps 302"
ok $? "a checkpoint of fp16 goes on with float32 masters" || diag "$(tail -n 3 half.log)"
like "$(cat half.log)" 'resuming with masters = float32 \(the checkpoint had float16\)' "and says so"
go half bf16 fp16 "--steps 304"
ok $? "and back in fp16" || diag "$(tail -n 3 half.log)"
like "$(cat half.log)" 'resuming with masters = float16 \(the checkpoint had float32\): .* 0.05 %' "which loses less"
newest=half/checkpoints/step_00000304
"$accel" ckpt verify "$newest" >out 2>&1
ok $? "tensors of float16 are whole" || diag "$(cat out)"
"$accel" ckpt show "$newest" >out
like "$(cat out)" 'model/wte.weight +float16' "weights are float16"
like "$(cat out)" 'scale/wte.weight +uint8' "and have their scales"
"$accel" ckpt index "$newest" >out 2>&1 && "$accel" ckpt verify --deep "$newest" >out 2>&1
ok $? "HDF5 tools see them in one file" || diag "$(cat out)"
"$accel" ckpt diff "$newest" "$newest" >out 2>&1
ok $? "they are compared" || diag "$(cat out)"
"$accel" ckpt export "$newest" weights.safetensors >out 2>&1
ok $? "they are weights for others" || diag "$(cat out)"
"$accel" ckpt export bf16/checkpoints bf16.safetensors >out 2>&1
ok $? "and so are those of bfloat16" || diag "$(cat out)"
"$accel" ckpt export --all "$newest" all.safetensors >out 2>&1
ok $? "all tensors are written as they are" || diag "$(cat out)"
"$accel" ckpt export --all bf16/checkpoints all-bf16.safetensors >out 2>&1
ok $? "of the other run as well" || diag "$(cat out)"
# The formula is that of doc/checkpoint-format.md; all numbers are exact in float32.
cat >same.py <<'END'
import json, sys, numpy
def tensors(path):
    import glob, os
    name = glob.glob(os.path.join(path, "*.safetensors"))[0] if os.path.isdir(path) else path
    raw = open(name, "rb").read()
    n = int.from_bytes(raw[:8], "little")
    types = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "U8": "u1", "F64": "<f8", "I64": "<i8", "I32": "<i4"}
    for key, t in json.loads(raw[8:8 + n]).items():
        if key != "__metadata__":
            a, b = t["data_offsets"]
            yield key, t["dtype"], numpy.frombuffer(raw[8 + n + a:8 + n + b], types[t["dtype"]]).reshape(t["shape"])
weights = {k: v for k, d, v in tensors(sys.argv[1])}
stored = {k: (d, v) for k, d, v in tensors(sys.argv[2])}
count = narrow = 0
for key, (dtype, v) in stored.items():
    if not key.startswith("model/"):
        continue
    name = key[6:]
    if dtype == "BF16":
        want = (v.astype("<u4") << 16).view("<f4")
    elif dtype == "F16":
        e = numpy.repeat(stored["scale/" + name][1].reshape(-1), 32)[:v.size].astype("f8")
        want = numpy.where(e == 0, 0, v.reshape(-1).astype("f8") * 2.0 ** (e - 127)).reshape(v.shape).astype("f4")
    else:
        want = v
    narrow += dtype != "F32"
    name = "transformer." + name if name != "lm_head.weight" else name
    if name.endswith((".c_attn.weight", ".c_proj.weight", ".c_fc.weight")):
        want = want.T
    assert weights[name].dtype == numpy.float32 and (weights[name] == want).all(), key
    count += 1
assert count == len(weights) > 0
print(count, "tensors,", narrow, "narrow")
END
python=
for p in python3 /usr/bin/python3; do
    "$p" -c 'import numpy' 2>/dev/null && python=$p
done
for run in "weights.safetensors all.safetensors" "bf16.safetensors all-bf16.safetensors"; do
    # shellcheck disable=SC2086
    if [ -n "$python" ]; then
        same=$("$python" same.py $run 2>&1)
        like "$same" ' [1-9][0-9]* narrow$' "$run: every number is what the page says"
    else
        skip 1 "no numpy"
    fi
done

go light bf16 'fp16, gradients: fp8' "--steps 300"
ok $? "gradients: fp8" || diag "$(tail -n 3 light.log)"
near wide light 0.01 "and gradients that rest in fp8 are within 1 %, too"
like "$(cat light.log)" 'gradients +[0-9.]+ .iB +shard, in e4m3' "the plan says so"
echo "$(number wide '  gradients') $(number light '  gradients')" |
    awk '{ print "# " $0; exit !($1 / $2 > 3.8 && $1 / $2 < 3.95) }'
ok $? "and counts 1.03 bytes for 4"

go fp8 fp8 fp16 "--steps 3"
ok $? "fp8 has fp16 masters" || diag "$(tail -n 3 fp8.log)"
rm -rf fp8
for level in O1 O2 O3; do
    train_config level.yaml FULL_SHARD fp8 1 1
    printf 'fp8_config: {backend: MSAMP, opt_level: %s}\n' "$level" >>level.yaml
    # shellcheck disable=SC2086 # MODEL is a list of words
    ACCEL_CONFIG=level.yaml timeout "$HANG_S" "$TRAIN" $MODEL --steps 30 --out $level >$level.log 2>&1
    ok $? "MS-AMP's $level" || diag "$(tail -n 3 $level.log)"
done
like "$(cat O2.log)" 'adam moments .* in e4m3 and fp16' "O2 has narrow moments"
like "$(cat O3.log)" 'weights +[0-9.]+ .iB +all units, linears in e4m3' "O3 holds weights"
same_bits O2/log.jsonl O3/log.jsonl
ok $? "and has O2's losses"
go O3 bf16 float32 "--steps 31"
ok $? "its checkpoint goes on in bf16" || diag "$(tail -n 3 O3.log)"
like "$(cat O3.log)" 'resuming with moments = float32 \(the checkpoint had fp8\): .* stays lost' "and says what is lost"
like "$(cat O3.log)" 'resuming with masters = float32 \(the checkpoint had float16\)' "of weights, too"
go fp8 fp8 bf16 "--steps 3"
ok $? "fp8 has bf16 masters, too" || diag "$(tail -n 3 fp8.log)"
for precision in no fp16; do
    go "$precision" "$precision" bf16 "--steps 2"
    isnt $? 0 "$precision has none"
    like "$(cat "$precision.log")" 'A0153.*accel.precision.masters is bf16' "and says so"
done
go words bf16 fp32 "--steps 2"
isnt $? 0 "nor is there another form"
done_testing
