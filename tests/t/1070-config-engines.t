#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# What libaccel's runtime makes of other engines' keys: DeepSpeed's stages 2 and 3, accumulation and
# clipping, from its own JSON file, train bit for bit as FSDP does, and so does FSDP in
# version 2; what it does not do yet is refused with place and cure.
# shellcheck source=tests/t/tap.sh
. "$(dirname "$0")/tap.sh"
# shellcheck source=tests/t/train.sh
. "$ACCEL_SRC/tests/t/train.sh"

tap_tmpdir
cd "$tap_tmp" || bail_out "no directory"
train_text text.txt
unset ACCEL_CONFIG ACCEL_CONFIG_RESOLVED
# One thread per rank: the suite's other tests use the cores as well.
export OMP_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

train() { # CONFIG [OPTION...]: exit code; log in out-CONFIG, output in out
    cfg=$1
    shift
    timeout "$HANG_S" "$ACCEL_BUILD/accel" launch -n "$ranks" --config "$cfg.yaml" "$TRAIN" \
        --data text.txt --layers 1 --heads 2 --width 16 --seq 16 --batch 2 --steps 6 \
        --sample 0 --out "out-$cfg" "$@" >out 2>&1
}
ranks=1
if command -v mpirun >/dev/null 2>&1; then
    ranks=2
else
    diag "no mpirun: with one process"
fi

mkdir ds
cat >fsdp.yaml <<'END'
distributed_type: FSDP
use_cpu: true
fsdp_config: {fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP}
END
cat >fsdp2.yaml <<'END'
distributed_type: FSDP
use_cpu: true
fsdp_config: {fsdp_version: 2, fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP}
END
cat >deepspeed.yaml <<'END'
distributed_type: DEEPSPEED
use_cpu: true
deepspeed_config: {deepspeed_config_file: ds/zero3.json}
END
cat >ds/zero3.json <<'END'
{"zero_optimization": {"stage": 3}, "bf16": {"enabled": "auto"},
 "gradient_accumulation_steps": 2, "gradient_clipping": 0.01}
END
train fsdp --accumulate 2 --clip 0.01
is "$?" 0 "FSDP trains" || diag "$(cat out)"
train fsdp2 --accumulate 2 --clip 0.01
is "$?" 0 "FSDP in version 2 trains" || diag "$(cat out)"
train deepspeed
is "$?" 0 "DEEPSPEED with its JSON file trains" || diag "$(cat out)"
is "$(losses out-fsdp/log.jsonl | wc -l)" 6 "six steps"
is "$(losses out-fsdp2/log.jsonl)" "$(losses out-fsdp/log.jsonl)" \
    "version 2 gives the bits of version 1"
is "$(losses out-deepspeed/log.jsonl)" "$(losses out-fsdp/log.jsonl)" \
    "stage 3, accumulation and clipping of the file give them as well"
cat >zero2.yaml <<'END'
distributed_type: DEEPSPEED
use_cpu: true
deepspeed_config: {zero_stage: 2, gradient_accumulation_steps: 2, gradient_clipping: 0.01}
END
train zero2
is "$?" 0 "stage 2 trains" || diag "$(cat out)"
is "$(losses out-zero2/log.jsonl)" "$(losses out-fsdp/log.jsonl)" "and gives them"

# The program by itself: accel launch would find a wrong mesh before it starts anything.
refused() { # CONFIG CODE TEXT
    ACCEL_CONFIG=$1.yaml timeout "$HANG_S" "$TRAIN" --data text.txt --out "out-$1" >out 2>&1
    is "$?" 65 "$1: exit code"
    like "$(cat out)" "error\[$2\]: .*$3" "$1: code, place and key"
    like "$(cat out)" '  cure: [^ ]' "$1: a cure"
    [ ! -e "out-$1" ]
    ok $? "$1: nothing was begun"
}
printf 'distributed_type: MULTI_XPU\n' >xpu.yaml
refused xpu A0170 "xpu.yaml:1: 'distributed_type: MULTI_XPU' is not supported yet"
timeout "$HANG_S" "$ACCEL_BUILD/accel" launch --config xpu.yaml -n 1 "$TRAIN" --data text.txt --out out-xpu >out 2>&1
is "$?" 65 "in a task: exit code"
like "$(cat out)" "error\[A0170\]: xpu.yaml:1: 'distributed_type: MULTI_XPU' is not" \
    "in a task, which opens no file: the same place"
printf 'distributed_type: MULTI_GPU\n' >gpu.yaml
ACCEL_CONFIG=gpu.yaml timeout "$HANG_S" "$TRAIN" --data text.txt --out out-gpu >out 2>&1
is "$?" 69 "GPUs are asked for and none is given: exit code"
like "$(cat out)" 'error\[A0426\]: .*MULTI_GPU, but this task has no GPU' \
    "never the CPU in silence"
printf 'distributed_type: FSDP\nmixed_precision: fp8\nfp8_config: {fp8_format: E5M2}\n' >fp8.yaml
refused fp8 A0170 "fp8.yaml:3: 'fp8_format: E5M2' is not supported yet"
printf 'distributed_type: DEEPSPEED\ndeepspeed_config:\n  offload_optimizer_device: cpu\n' >offload.yaml
refused offload A0170 "offload.yaml:3: 'offload_optimizer_device: cpu' is not supported yet"
cat >mesh.yaml <<'END'
distributed_type: FSDP
fsdp_config: {fsdp_version: 2}
parallelism_config:
  parallelism_config_dp_shard_size: 3
END
refused mesh A0130 'mesh.yaml:4: the sizes of parallelism_config do not fill 1 processes: dp_shard 3'
done_testing
