#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# accel plan: parameter counts of the known models, the same figures that a run prints for
# itself, sizes that cannot be refused by name, and no heavy library.
# shellcheck source=tests/t/tap.sh
. "$(dirname "$0")/tap.sh"

tap_tmpdir
accel=$ACCEL_BUILD/accel
train=$ACCEL_BUILD/examples/train
cd "$tap_tmp" || bail_out "no directory"
cp "$ACCEL_SRC"/examples/*.yaml .

run() { # CMD...: sets code, out, err
    "$@" >out 2>err
    code=$?
    out=$(cat out)
    err=$(cat err)
}

# ---- models ----
for model in gpt2-124M:124439808 gpt2-355M:354823168 gpt2-774M:774030080 gpt2-1558M:1557611200 \
    llama-2-7b:6738415616 llama-3-8b:8030261248 llama-3.2-1b:1235814400 llama-3-70b:70553706496 \
    llama-3.1-405b:405853388800 bert-base-uncased:109514298; do
    run "$accel" plan fsdp.yaml --model "${model%:*}" --batch 1 --seq 64
    is "$code/$err" "0/" "plan of ${model%:*}"
    contains "$out" "(${model#*:})" "with its published number of parameters"
done
mkdir tiny
cat >tiny/config.json <<'END'
{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_act": "silu",
 "hidden_size": 64, "intermediate_size": 172, "num_attention_heads": 4, "num_hidden_layers": 2,
 "num_key_value_heads": 2, "vocab_size": 300, "max_position_embeddings": 128,
 "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": true}
END
run "$accel" plan fsdp.yaml --model tiny --batch 1
is "$code/$err" "0/" "plan of a directory with a config.json"
# 300 64 + 2 (2 64 + 64 (64 + 32 + 32 + 64) + 3 64 172) + 64
contains "$out" "(110144)" "with the parameters of its sizes"
for bad in mistral:64 llama-3-7b:64 ./nowhere:66; do
    run "$accel" plan fsdp.yaml --model "${bad%:*}"
    is "$code" "${bad#*:}" "no model ${bad%:*}"
    like "$err" "^  cure: " "with a cure"
done
run "$accel" plan fsdp.yaml --nodes 4 --gpus 8 --batch 1 --seq 64
is "$code" 0 "32 ranks with a file for two"
like "$out" '^  ranks +32 on 4 nodes, ' "are planned"
contains "$err" "num_processes: 2, so srun will refuse 32 ranks" "with a note"

# ---- the same as a run says ----
rows() { # of a plan: what does not depend on the process and its data
    grep -E '^ +(parameters|ranks|sharding|precision|adam moments|gradients|gather ring|bf16 copy|reduce buffer|activations|sent per step|checkpoint) ' "$1" |
        sed -E 's/^.*(  (  )?(parameters|ranks|sharding|precision|adam|gradients|gather|bf16|reduce|activations|sent|checkpoint) )/\1/'
}
compare() { # CONFIG RANKS DESCRIPTION
    run env OMP_NUM_THREADS=1 timeout "$HANG_S" "$accel" launch --config "$1" "$train" \
        --data "$ACCEL_SRC/examples/sample.txt" --layers 2 --heads 2 --width 32 --seq 48 \
        --vocab 300 --batch 3 --accumulate 2 --steps 1 --sample 0 --out "out-$2"
    is "$code" 0 "$3: a run of one step" || diag "$err"
    cat out err >said
    run "$accel" plan "$1" --layers 2 --heads 2 --width 32 --seq 48 --context 48 \
        --vocab 300 --batch 3 --accumulate 2 --threads 1
    is "$code/$err" "0/" "$3: the plan"
    [ "$(rows out | wc -l)" -ge 7 ]
    ok $? "$3: with its rows"
    is "$(rows out)" "$(rows said)" "$3: the same as the run prints"
}
if [ -x "$train" ]; then
    compare single.yaml 1 "one rank"
    if command -v mpirun >/dev/null 2>&1 && grep -q '^#define HAVE_PMIX\|-DHAVE_PMIX' \
        "$ACCEL_BUILD/Makefile"; then
        compare fsdp.yaml 2 "two sharded ranks"
        compare ddp.yaml 22 "two replicas"
    else
        skip 8 "no mpirun, or built without PMIx"
    fi
else
    skip 12 "the trainer is not built"
fi

# ---- ranks, strategies, checkpoints ----
run "$accel" plan single.yaml --set distributed_type=FSDP --nodes 2 --ranks 8 --batch 1 --seq 64 \
    --compare
is "$code" 0 "all strategies on 8 ranks of 2 nodes"
is "$(awk 'NR > 1 { print $1 }' out | tr '\n' ' ')" \
    "FULL_SHARD NO_SHARD SHARD_GRAD_OP HYBRID_SHARD HYBRID_SHARD_ZERO2 ZeRO-1 ZeRO-2 " \
    "the config's own comes first"
is "$(grep 'not yet$' out | awk '{ print $1 }' | tr '\n' ' ')" "ZeRO-1 ZeRO-2 " \
    "those that are not supported yet are marked"
run "$accel" plan single.yaml --set distributed_type=FSDP --ranks 8 --gpus 4 --batch 1 --seq 64
like "$out" '^  ranks +8 on 2 nodes' "--ranks and --gpus give the nodes"
like "$out" '^    over the network ' "what goes over the network is told apart"
facts() { # CONFIG-TEXT [OPTION]...: sharding and groups of a plan, in one line
    printf '%b' "$1" >facts.yaml
    shift
    run "$accel" plan facts.yaml --batch 1 --seq 64 "$@"
    out=$(sed -n -e 's/^  sharding *//p' -e 's/^  groups *//p' -e 's/^    host memory.*/host/p' out |
        sed -e 's/, .*(planned.*/ planned/' -e 's/, .*//' | tr '\n' '/')
}
fsdp='distributed_type: FSDP\nfsdp_config:\n'
facts "$fsdp  fsdp_sharding_strategy: HYBRID_SHARD\n" --nodes 3 --gpus 4
is "$out" "HYBRID_SHARD/dp_replicate 3 x dp_shard 4/" "HYBRID_SHARD groups follow nodes"
facts "$fsdp  fsdp_sharding_strategy: HYBRID_SHARD\n" --nodes 2 --gpus 1
is "$out" "HYBRID_SHARD/" "with one rank a node they are copies"
facts "$fsdp  fsdp_version: 2\n  fsdp_reshard_after_forward: false\n" --ranks 4
is "$out" "SHARD_GRAD_OP/" "FSDP2 that keeps the parameters"
facts "$fsdp  fsdp_offload_params: true\n" --ranks 4
is "$out" "FULL_SHARD/host/" "offloaded parameters"
deepspeed='distributed_type: DEEPSPEED\ndeepspeed_config:\n'
for stage in 0:NO_SHARD 1:SHARD_GRAD_OP 2:SHARD_GRAD_OP 3:FULL_SHARD; do
    facts "$deepspeed  zero_stage: ${stage%:*}\n" --ranks 4
    like "$out" "^${stage#*:}( planned)?/" "DeepSpeed's stage ${stage%:*}"
done
facts "$deepspeed  zero_stage: 2\n  offload_optimizer_device: cpu\n" --ranks 4
like "$out" '^SHARD_GRAD_OP planned/host/' "and its offloaded optimizer"
mesh="$fsdp  fsdp_version: 2\nparallelism_config:\n  parallelism_config_dp_shard_size: 2\n"
mesh="$mesh  parallelism_config_dp_replicate_size: 2\n  parallelism_config_tp_size: 2\n"
facts "$mesh" --nodes 2 --gpus 4
is "$out" "FULL_SHARD planned/dp_replicate 2 x dp_shard 2 x tp 2/" "a mesh of three axes"
facts "$mesh" --ranks 6
is "$code/$out" "65/" "that does not fit the ranks"
contains "$err" "A0070" "is refused with its code"
facts 'distributed_type: MEGATRON_LM\nmegatron_lm_config:\n  megatron_lm_tp_degree: 2\n' --ranks 8
is "$out" "NO_SHARD planned/dp_replicate 4 x tp 2/" "Megatron-LM's tensor parallelism"
facts 'distributed_type: MEGATRON_LM\nmegatron_lm_config:\n  megatron_lm_pp_degree: 2\n' --ranks 8
is "$code/$out" "65/" "pipeline stages"
contains "$err" "A0071" "are not planned"
# 124439808 * 12 bytes at 2 GB/s; sqrt(2 * 0.7466 * 43200) = 254 s
run "$accel" plan single.yaml --batch 1 --seq 64 --storage 2 --mtbf 12
like "$out" '^  time of a save +0\.747 s ' "the time of a save"
like "$out" '^  save every +4\.23 min .*accel.checkpoint.every_minutes: 4\.23$' \
    "and how often to save"
run "$accel" plan single.yaml --mtbf 12
is "$code/$out" "64/" "--mtbf without --storage"
contains "$err" "--storage GBPS" "names what is missing"
run "$accel" plan fsdp.yaml --nodes 2 --gpus 3 --ranks 4
is "$code/$out" "65/" "ranks, nodes and GPUs that do not multiply"
run "$accel" plan fsdp.yaml --set fsdp_config
is "$code/$out" "64/" "--set without a value"
run "$accel" plan fsdp.yaml --set =1
is "$code/$out" "64/" "--set without a key"
contains "$err" "write --set KEY=VALUE" "says how it is written"
run "$accel" plan fsdp.yaml --set nonsense=1
is "$code/$out" "64/" "--set of an unknown key"

# ---- GPUs ----
unset FAKE_NVML
run "$accel" plan fsdp.yaml --gpus 2 --model llama-3-8b --batch 1 --seq 8192 --gpu-memory 80
is "$code" 65 "two GPUs that are too small"
like "$err" '^error\[A0016\]: fsdp.yaml: the plan needs [0-9.]+ GiB of each GPU, which has 80.0 GiB \([0-9]+ %\)$' \
    "are said to be, with what is missing"
for row in 'sums +64\.0 MiB' 'activations .* in steps of 32 MiB' 'kernels +1\.3 GiB +workspace' \
    'before the model +1\.2 GiB +estimate: ' 'peak +[0-9.]+ GiB +[0-9]+ % of 80\.0 GiB: does not fit' \
    'checkpoint .*a copy of the shards' 'page-locked '; do
    like "$out" "^    $row" "the plan has a row $row"
done
like "$err" '^  cure: fsdp_activation_checkpointing: true \([0-9.]+ GiB\)$' "and what makes it fit"
cure=$(echo "$err" | sed -n 's/^  cure: .*(\([0-9.]* GiB\))$/\1/p')
run "$accel" plan fsdp.yaml --gpus 2 --model llama-3-8b --batch 1 --seq 8192 --gpu-memory 80 \
    --set fsdp_activation_checkpointing=true
is "$code" 0 "with that it fits"
like "$out" '^    activations .*; [0-9.]+ GiB of it only because there is room, for logits$' \
    "and keeps logits in what is left"
little=$(echo "$cure" | awk '{ printf "%d", $1 + 2 }')
run "$accel" plan fsdp.yaml --gpus 2 --model llama-3-8b --batch 1 --seq 8192 \
    --gpu-memory "$little" --set fsdp_activation_checkpointing=true
# The kernels' workspace is a part of the memory: less memory, a little less need.
needs=$(echo "$out" | awk -v of="$little.0" '$1 == "peak" && $7 == of { print $2 }')
is "$(awk -v said="${cure% *}" -v needs="$needs" \
    'BEGIN { print (needs <= said && needs > said - 0.25 ? "yes" : said " and " needs) }')" yes \
    "where little is left it needs what was said"
unlike "$out" "for logits" "and keeps none"
run "$accel" plan single.yaml --gpus 1 --model llama-3-70b --gpu-memory 80
is "$code" 65 "a model of 70 billion parameters on one GPU"
like "$err" '^  cure: FULL_SHARD over 32 GPUs, fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP, fsdp_activation_checkpointing: true and a batch of 1 and 8 micro-batches a step \(' \
    "needs several changes together"
like "$err" '\([0-9]{4} %\)$' "more than ten times the memory"
like "$(sh -c '"$1" plan single.yaml --gpus 1 --model llama-3-70b --gpu-memory 80 2>&1' sh "$accel" |
    head -n 1)" '^error\[A0016\]' "the advice comes first"
run "$accel" plan fsdp.yaml --gpus 2 --model llama-3-8b --batch 1 --seq 8192 --gpu-memory 80 --compare
is "$code" 65 "a comparison ends with the code of the config's own plan"
like "$(head -n 1 out)" ' PEAK +FITS ' "and says of each"
is "$(sed -n -E 's/^([A-Z_]+) .* [KMGT]iB +(yes|no) .*/\1 \2/p' out |
    head -n 2 | tr '\n' ' ')" "FULL_SHARD no NO_SHARD no " "whether it fits"

# ---- levels of precision ----
plan4() { # OPTION...: keys and numbers of JSON, a line each
    "$accel" plan fsdp.yaml --ranks 4 --batch 2 --seq 64 --json "$@" 2>err |
        sed -n -E 's/^ *"([a-z_]+)": "?([A-Za-z0-9_+ -]+)"?,?$/\1 \2/p'
}
plan4 --compare-precision >levels
of() { # KEY: of each level, in the order of the rows
    sed -n "s/^$1 //p" levels | tr '\n' ' '
}
is "$(of precision)" "bf16 no fp16 fp8 fp8 current fp8 block mxfp8 no+8bit bf16+8bit fp16+8bit fp8+8bit fp8 current+8bit fp8 block+8bit mxfp8+8bit $(
    for level in bf16 bf16+8bit fp8 fp8+8bit; do
        printf '%s+masters-bf16 %s+masters-none %s+masters-fp16 ' $level $level $level
    done
    for level in bf16 fp8; do
        printf '%s+gradients-fp8 ' $level $level+masters-fp16 $level+8bit+masters-fp16
    done)MSAMP O1 MSAMP O2 MSAMP O3 fp8 AO fp8 AO+8bit " "this config's level comes first, then all others"
is "$(of parameters)" "$(of parameters | awk '{ for (i = 1; i <= 37; i++)
    printf "%d ", i <= 14 || i == 27 || i == 30 || 35 < i ? $1 : i <= 26 && i % 3 < 2 ? $1 / 2 : $1 * 65 / 128 }')" \
    "masters are float32 where the level does not say bf16, none or fp16"
is "$(of gather)" "$(of gather | awk '{ for (i = 1; i <= 37; i++) printf "%d ", i == 2 || i == 8 ? 2 * $1 : 34 < i ? $i : $1 }')" \
    "gathered copies take half the bytes in 16 bits"
is "$(of gradients)" "$(of gradients | awk '{ for (i = 1; i <= 37; i++) printf "%d ", i <= 26 || 35 < i ? $1 : $1 * 33 / 128 }')" \
    "gradients at rest take 1.03 of 4 bytes"
is "$(of moments | awk '{ print int(1000 * $9 / $1 + 0.5) }')" 281 "8-bit moments: 2.25 of 8 bytes"
is "$(of moments | awk '{ print int(1000 * $34 / $1 + 0.5), int(1000 * $35 / $1 + 0.5) }')" "383 383" \
    "in e4m3 and float16: 3.06"
as_alone() { # LEVEL: row $row is the plan in `alone`
    for key in gather reduce activations peak; do
        is "$(of $key | cut -d' ' -f$row)" "$(sed -n "s/^$key //p" alone)" "$1: $key as in its own plan"
    done
    is "$(of checkpoint | cut -d' ' -f$row)" "$(sed -n 's/^checkpoint_bytes //p' alone)" \
        "$1: and its checkpoint"
    row=$((row + 1))
}
row=1
for level in bf16 no fp16 fp8 fp8/current fp8/block fp8/mxfp8 no+8bit bf16+8bit; do
    moments=float32 recipe=delayed
    case $level in *+8bit) moments=8bit ;; */*) recipe=${level#*/} ;; esac
    plan4 --set mixed_precision=${level%[+/]*} --set accel.precision.moments=$moments \
        --set accel.precision.fp8_recipe="$recipe" >alone
    as_alone "$level"
done
row=33
for level in O1 O2 O3; do
    plan4 --set mixed_precision=fp8 --set fp8_backend=MSAMP --set fp8_opt_level=$level >alone
    as_alone "MSAMP $level"
done
plan4 --set mixed_precision=fp8 --set fp8_backend=AO >alone
as_alone "fp8 AO"
# From whatever level: the same rows, each the same.
rows() {
    awk '$1 == "precision" { if (row) print row; row = "" } { row = row "|" $0 } END { print row }' "$@" | sort
}
rows levels >from_bf16
for own in "fp8_backend=AO" "fp8_backend=MSAMP --set fp8_opt_level=O2"; do
    # shellcheck disable=SC2086
    plan4 --compare-precision --set mixed_precision=fp8 --set $own >others
    is "$(rows others | diff from_bf16 -)" "" "$own: the same rows"
done
is "$(sed -n 's/^precision //p' others | head -n 1)" "MSAMP O2" "its own first"
plan4 --compare-precision --set mixed_precision=fp8 --set fp8_backend=MSAMP --set fp8_opt_level=O2 \
    --set fp8_use_mxfp8_block_scaling=true >others
is "$(sed -n 's/^precision //p' others | head -n 1)" "MSAMP O2" "a switch of another engine changes nothing"
plan4 --compare-precision --set mixed_precision=fp8 --set accel.precision.fp8_recipe=powers >others
is "$(sed -n 's/^precision //p' others | sed -n '1p;$p' | tr '\n' ' ')" "this config fp8 AO+8bit " \
    "settings that are no level come first all the same"
is "$(rows others | grep -v 'this config' | diff from_bf16 -)" "" "and the rows are the same"
run "$accel" plan fsdp.yaml --gpus 2 --gpu-memory 80 --batch 1 --seq 64 --compare-precision
is "$(grep -c ' yes ' out) $(grep -c 'not yet' out)" "$(($(wc -l <out) - 1)) 0" "GPUs have every level"
# Levels that cannot have the rules for modules are shown without them.
cp out without
run "$accel" plan fsdp.yaml --gpus 2 --gpu-memory 80 --batch 1 --seq 64 --compare-precision \
    --set 'accel.precision.modules=*ln_*=fp32'
is "$code" 0 "levels with rules for modules"
is "$(sed 's/  .*//' out)" "$(sed 's/  .*//' without)" "are the same ones"
isnt "$(grep '^bf16  ' out)" "$(grep '^bf16  ' without)" "bf16 has wide norms"
is "$(grep '^bf16+masters-bf16 ' out)" "$(grep '^bf16+masters-bf16 ' without)" "beside narrow masters there are none"
run "$accel" plan fsdp.yaml --ranks 2 --batch 1 --seq 64 --set 'accel.precision.modules=*ln_*=fp32' \
    --set mixed_precision=bf16
like "$out" '^  modules  *13 of 26 units in other dtypes' "the plan says how many"
like "$out" '^    gather ring .*two largest units of each dtype' "and that each dtype has a ring"
run "$accel" check fsdp.yaml --set 'accel.precision.modules=*ln_*=fp8' --set mixed_precision=bf16
like "$out$err" "fp8 in 'accel.precision.modules' has no effect with mixed_precision bf16" "fp8 alone gets a note"
run "$accel" plan fsdp.yaml --ranks 1 --batch 2 --seq 64 --set mixed_precision=fp8 --set fp8_backend=MSAMP \
    --set fp8_opt_level=O3
like "$out" '^    weights +[0-9.]+ MiB +all units, linears in e4m3' "what one rank holds"
run "$accel" plan fsdp.yaml --ranks 4 --batch 2 --seq 64 --compare-precision
like "$(head -n 1 out)" '^PRECISION +PARAMETERS +MOMENTS .* PEAK +FITS .* CHECKPOINT' "one table for readers"
run "$accel" plan fsdp.yaml --gpus 2 --batch 1 --seq 64 --gpu-memory 80
like "$out" '^    peak +[0-9.]+ GiB +[0-9]+ % of 80\.0 GiB$' "one that fits"
is "$code/$err" "0/" "needs no help"
run "$accel" plan fsdp.yaml --gpus 2 --batch 1 --seq 64 --gpu-memory 80 \
    --set fsdp_offload_params=true
like "$out" '^  memory of the host' "what is offloaded"
is "$(awk '/^  memory of the GPU/ { gpu = 1 } /^  memory of the host/ { gpu = 0 }
    $1 == "gradients" { print gpu }' out)" 0 "is on the host"
run "$accel" plan fsdp.yaml --gpus 2 --set use_cpu=true --batch 1 --seq 64
like "$out" '^  memory per rank' "use_cpu: true plans for cores"
run "$accel" plan fsdp.yaml --gpu-memory 0
is "$code/$out" "64/" "--gpu-memory of nothing"

# ---- refusals ----
run "$accel" plan single.yaml --ranks 2
is "$code/$out" "65/" "distributed_type NO with two ranks"
contains "$err" "cure: set distributed_type: FSDP" "and its cure"
run "$accel" plan fsdp.yaml --nodes 3
is "$code/$out" "65/" "two processes on three nodes"
contains "$err" "2 ranks cannot be spread evenly over 3 nodes" "with both numbers"
run "$accel" plan fsdp.yaml --heads 5
is "$code/$out" "64/" "a width that is no multiple of the heads"
contains "$err" "768" "is named"
run "$accel" plan fsdp.yaml --model gpt3
is "$code/$out" "64/" "an unknown model"
contains "$err" "did you mean gpt2" "with the nearest"
run "$accel" plan fsdp.yaml --seq 2000 --context 100
is "$code/$out" "64/" "a sequence longer than the context"
run "$accel" plan fsdp.yaml --batch 0
is "$code/$out" "64/" "an empty batch"
run "$accel" plan nowhere.yaml
is "$code/$out" "66/" "a missing file"
run "$accel" plan
is "$code/$out" "64/" "no file"
sed 's/TRANSFORMER_BASED_WRAP/&\n  fsdp_transformer_layer_cls_to_wrap: GPT2Blok/' fsdp.yaml >wrap.yaml
run "$accel" plan wrap.yaml
is "$code/$out" "65/" "a class that does not occur"
contains "$err" "GPT2Block" "with the nearest"

if command -v python3 >/dev/null 2>&1; then
    "$accel" plan fsdp.yaml --nodes 2 --gpus 2 --batch 1 --seq 64 --json >out 2>/dev/null
    is "$(python3 -c 'import json; d = json.load(open("out")); b = d["bytes_per_rank"]
print(d["ranks"], d["shard_group_size"], d["replica_group_size"],
      d["supported"], d["groups"]["dp_shard"], d["sent_by_link"]["network"] * 2 ==
      d["sent_by_link"]["node"] * 4, b["peak"] == sum(v for k, v in b.items() if k != "peak") - 2 * b["in_host_memory"],
      d["checkpoint_bytes"] == 12 * d["params"])' 2>&1)" "4 4 1 True {'size': 4, 'stride': 1} True True True" "--json"
    printf '%b' "$mesh" >mesh.yaml
    "$accel" plan mesh.yaml --nodes 2 --gpus 4 --batch 1 --seq 64 --json >out 2>/dev/null
    is "$(python3 -c 'import json; d = json.load(open("out")); print(d["ranks"], d["shard_group_size"],
      d["replica_group_size"], d["gpu"]["fits"])' 2>&1)" "8 2 2 None" "groups of a mesh beside tp"
    printf 'distributed_type: MEGATRON_LM\nmegatron_lm_config:\n  megatron_lm_tp_degree: 8\n' >tp.yaml
    "$accel" plan tp.yaml --ranks 8 --batch 1 --seq 64 --json >out 2>/dev/null
    is "$(python3 -c 'import json; d = json.load(open("out"))
print(0.12 < d["bytes_per_rank"]["parameters"] / (4 * d["params"]) < 0.13)' 2>&1)" True \
        "a tensor-parallel rank of eight holds an eighth of every matrix"
    "$accel" plan fsdp.yaml --gpus 2 --model llama-3-8b --batch 1 --seq 8192 --gpu-memory 80 --json \
        >out 2>/dev/null
    is "$?/$(python3 -c 'import json; print(json.load(open("out"))["gpu"]["fits"])' 2>&1)" "65/False" \
        "a plan that does not fit is JSON all the same"
else
    skip 4 "no python3"
fi
if command -v ldd >/dev/null 2>&1; then
    unlike "$(ldd "$accel")" 'libpmix|libucp' \
        "accel links no PMIx or UCX, so it starts at once"
else
    skip 1 "no ldd"
fi
done_testing
