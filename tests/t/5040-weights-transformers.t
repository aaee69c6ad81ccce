#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Both ways with transformers itself: a gpt2 with random weights that it saved gives here
# the logits that it gives there, and what is written here it loads, with the same bits.
# shellcheck source=tests/t/tap.sh
. "$(dirname "$0")/tap.sh"

tap_tmpdir
python=${ACCEL_TORCH_PYTHON:-python3}
"$python" -c 'import torch, transformers, safetensors' 2>/dev/null ||
    skip_all "no torch and transformers in $python (set ACCEL_TORCH_PYTHON)"
HF_HUB_OFFLINE=1 PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1 TQDM_DISABLE=1
export HF_HUB_OFFLINE PYTHONDONTWRITEBYTECODE OMP_NUM_THREADS TQDM_DISABLE
cd "$tap_tmp" || bail_out "no directory"
printf 'use_cpu: true\ndistributed_type: "NO"\nmixed_precision: "no"\n' >one.yaml
ACCEL_CONFIG=$tap_tmp/one.yaml
export ACCEL_CONFIG
head -c 4000 "$ACCEL_SRC/LICENSE" >text.txt

# made NAME DTYPE SHARD_SIZE SEED: a model that transformers saves
made() {
    "$python" - "$@" <<'PY'
import sys, torch
from transformers import GPT2Config, GPT2LMHeadModel
name, dtype, size, seed = sys.argv[1:]
torch.manual_seed(int(seed))
model = GPT2LMHeadModel(GPT2Config(n_layer=3, n_head=4, n_embd=64, n_positions=48, vocab_size=300,
    n_inner=None, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    bos_token_id=0, eos_token_id=0))
with torch.no_grad():
    for p in model.parameters():
        p.add_(torch.randn(p.shape) * 0.1)
model.to(getattr(torch, dtype)).save_pretrained(name, max_shard_size=size)
PY
}

# compared IN OUT PRINTED: logits of IN in torch against those printed, tensors of OUT
compared() {
    "$python" - "$@" <<'PY'
import sys, torch
from transformers import GPT2LMHeadModel
ours = dict(line.split(" ", 1) for line in open(sys.argv[3]) if " " in line)
ids = torch.tensor([[int(x) for x in ours["ids"].split()]])
got = torch.tensor([float(x) for x in ours["logits"].split()])
a = GPT2LMHeadModel.from_pretrained(sys.argv[1], dtype=torch.float32).eval()
b, info = GPT2LMHeadModel.from_pretrained(sys.argv[2], dtype=torch.float32, output_loading_info=True)
with torch.no_grad():
    want = a(ids).logits[0, -1]
    again = b.eval()(ids).logits[0, -1]
off = (want - got).abs().max().item()
assert off < 1e-4, f"logits are off by {off}"
assert not any(info[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
for (name, x), (other, y) in zip(a.state_dict().items(), b.state_dict().items()):
    assert name == other and torch.equal(x, y), name
assert torch.equal(want, again)
print(f"# logits off by {off:.1e}")
PY
}

# both_ways NAME DTYPE SIZE SEED OUT_DTYPE OUT_BYTES
both_ways() {
    passes "$1: transformers saves it" made "$1" "$2" "$3" "$4"
    "$ACCEL_BUILD/tests/helpers/weights" "$1" "$1-out" "$5" "$6" text.txt 40 "$1-work" \
        >"$1.txt" 2>"$1.log"
    ok $? "$1: read and written" || diag "$(cat "$1.log")"
    passes "$1: the same logits, and transformers loads the same bits" \
        compared "$1" "$1-out" "$1.txt"
}
both_ways whole float32 1GB 1 float32 0
both_ways shards float32 200KB 2 float32 150000
both_ways half bfloat16 1GB 3 bfloat16 100000
both_ways sixteen float16 1GB 4 float32 0
done_testing
