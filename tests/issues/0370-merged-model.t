#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Mended: accel merge-weights and accel ckpt export of a GPT-2 run wrote its matrices
# transposed, under names without a prefix and without config.json: neither transformers nor
# accel_load_weights took them.
# shellcheck source=tests/t/tap.sh
. "$(dirname "$0")/../t/tap.sh"

tap_tmpdir
accel=$ACCEL_BUILD/accel
train=$ACCEL_BUILD/examples/train
data=$ACCEL_SRC/tests/data
cd "$tap_tmp" || bail_out "no directory"
export OMP_NUM_THREADS=1

# 512 tokens below 41, the vocabulary of the models (doc/tokens.md)
{
    printf '\210\330\064\001\001\000\000\000\000\002\000\000'
    head -c 1012 /dev/zero
    i=0
    while [ $i -lt 512 ]; do
        printf '%b' "\\0$(printf %03o $((i % 41)))\\0000"
        i=$((i + 1))
    done
} >data.bin

run() { # NAME MODEL: one step that changes next to nothing
    "$train" --model "$2" --data data.bin --seq 8 --batch 1 --steps 1 --lr 1e-12 --weight-decay 0 --sample 0 \
        --eval-every 0 --out "$1" >"$1.log" 2>&1
    ok $? "$1: a run" || diag "$(tail -n 3 "$1.log")"
}
# Tensors of two files as the weights of two checkpoints, compared.
same() { # A B
    rm -rf one two
    "$accel" ckpt import "$1" one >/dev/null && "$accel" ckpt import "$2" two >/dev/null &&
        "$accel" ckpt diff --tol 1e-9 one two
}

cp -r "$data/weights/gpt2" gpt2
cp "$data"/tokenizer/gpt2/* gpt2
echo '{"tokenizer_class": "GPT2Tokenizer"}' >gpt2/tokenizer_config.json
run gpt2-run gpt2
passes "merge-weights" "$accel" merge-weights gpt2-run/checkpoints merged
passes "the tensors are those that transformers wrote" \
    same gpt2/model.safetensors merged/model.safetensors
passes "import is the way back" "$accel" ckpt import merged back
passes "with the names of the run" "$accel" ckpt export --hf gpt2 back merged-again
passes "and its layouts" cmp merged/model.safetensors merged-again/model.safetensors
like "$(tr -d ' \n' <merged/config.json)" '"model_type":"gpt2".*"n_embd":8.*"torch_dtype":"float32"' \
    "config.json"
is "$(grep -c "$tap_tmp\|_name_or_path" merged/config.json)" 0 "without a path of this machine"
is "$(cd merged && echo *)" \
    "config.json merges.txt model.safetensors tokenizer_config.json vocab.json" \
    "with the tokenizer's files"
step=$(find gpt2-run/checkpoints -name 'step_*')
"$accel" merge-weights --remove_checkpoint_dir gpt2-run/checkpoints "$step/merged" >said 2>&1
is $? 64 "weights inside the checkpoint that is to be removed: refused"
contains "$(cat said)" "lies in the checkpoint that is to be removed" "and why"
[ -e "$step/MANIFEST" ] && [ ! -e "$step/merged" ]
ok $? "nothing is removed or written"
run again merged
contains "$(cat again.log)" "parameters read from merged" "a run takes it"
passes "in 16 bits" "$accel" ckpt export --dtype bfloat16 gpt2-run/checkpoints half
contains "$(cat half/config.json)" '"torch_dtype": "bfloat16"' "config.json says so"
passes "--hf that agrees" "$accel" ckpt export --hf gpt2 gpt2-run/checkpoints named
passes "writes the same" cmp named/config.json merged/config.json
passes "--hf that does not agree" "$accel" ckpt export --hf llama gpt2-run/checkpoints other
[ ! -e other/config.json ]
ok $? "writes no config.json"
passes "--all" "$accel" ckpt export --all gpt2-run/checkpoints all
is "$(echo all/*)" "all/model.safetensors" "writes tensors alone"
python=${ACCEL_TORCH_PYTHON:-python3}
if "$python" -c 'import torch, transformers' 2>/dev/null; then
    cat >load.py <<'PY'
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
a = AutoModelForCausalLM.from_pretrained("gpt2")
b, info = AutoModelForCausalLM.from_pretrained("merged", output_loading_info=True)
assert not any(info[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
x, y = a.state_dict(), b.state_dict()
assert x.keys() == y.keys()
assert all(torch.allclose(x[k], y[k], rtol=0, atol=1e-9) for k in x)
assert AutoTokenizer.from_pretrained("merged")("the").input_ids
PY
    passes "transformers loads it" env HF_HUB_OFFLINE=1 "$python" load.py
else
    skip 1 "no torch and transformers in $python (ACCEL_TORCH_PYTHON)"
fi
rm -r gpt2
passes "when the model's directory is gone" "$accel" merge-weights gpt2-run/checkpoints gone
is "$(cd gone && echo *)" "config.json model.safetensors" "the tokenizer is left out"

for kind in llama llama-tied; do
    run $kind-run "$data/weights/$kind"
    passes "$kind: merge-weights" "$accel" merge-weights $kind-run/checkpoints $kind
    passes "$kind: the tensors are those that transformers wrote" \
        same "$data/weights/$kind/model.safetensors" $kind/model.safetensors
done
done_testing
