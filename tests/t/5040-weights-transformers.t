#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Both ways with transformers itself: a gpt2, llama or bert with random weights that it saved
# gives here the logits that it gives there, and what is written here it loads, with the same
# bits.
# shellcheck source=tests/t/tap.sh
. "$(dirname "$0")/tap.sh"
# shellcheck source=tests/t/torch.sh
. "$(dirname "$0")/torch.sh"

tap_tmpdir
need_torch "transformers, safetensors"
PYTHONPATH=$tap_tmp
export PYTHONPATH

# The kinds of models: what transformers calls them, their sizes, and the class of their head.
cat >kinds.py <<'PY'
import os, sys, torch
from transformers import (BertConfig, BertForMaskedLM, BertForSequenceClassification, GPT2Config,
    GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM)
gpt2 = dict(n_layer=3, n_head=4, n_embd=64, n_positions=48, vocab_size=300, resid_pdrop=0.0,
    embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0)
llama = dict(num_hidden_layers=3, hidden_size=48, intermediate_size=80, vocab_size=300,
    num_attention_heads=6, max_position_embeddings=64, pad_token_id=0)
bert = dict(num_hidden_layers=3, hidden_size=64, intermediate_size=96, vocab_size=300,
    num_attention_heads=4, max_position_embeddings=48)
scaled = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
    original_max_position_embeddings=40)
kinds = {
    "gpt2": (GPT2LMHeadModel, GPT2Config(**gpt2)),
    "gpt2-inner": (GPT2LMHeadModel, GPT2Config(**gpt2, n_inner=100, activation_function="relu",
        layer_norm_epsilon=1e-3)),
    "llama": (LlamaForCausalLM, LlamaConfig(**llama)),
    "llama3": (LlamaForCausalLM, LlamaConfig(**llama, num_key_value_heads=2, head_dim=16,
        rope_theta=100.0, rope_scaling=scaled, tie_word_embeddings=False, rms_norm_eps=1e-4)),
    "llama-tied": (LlamaForCausalLM, LlamaConfig(**llama, num_key_value_heads=1,
        tie_word_embeddings=True, attention_bias=True, mlp_bias=True,
        rope_scaling=dict(rope_type="linear", factor=2.0))),
    "bert": (BertForMaskedLM, BertConfig(**bert)),
    "bert-labels": (BertForSequenceClassification, BertConfig(**bert, num_labels=5)),
}

def inputs(kind, n):
    """What the helper gives the model."""
    ids = torch.tensor([[(7 * i + 5 * b + 3) % 41 for i in range(n)] for b in (0, 1)])
    if not kind.startswith("bert"):
        return {"input_ids": ids}
    types = torch.tensor([[int(2 * i >= n) for i in range(n)]] * 2)
    mask = torch.tensor([[1] * n, [1] * (n - 3) + [0] * 3])
    return {"input_ids": ids, "token_type_ids": types, "attention_mask": mask}
PY

# What is made: name, kind, dtype and size of its files, seed; dtype and size of ours
cat >cases <<'END'
whole gpt2 float32 1GB 1 float32 0
shards gpt2 float32 200KB 2 float32 150000
half gpt2 bfloat16 1GB 3 bfloat16 100000
sixteen gpt2 float16 1GB 4 float32 0
inner gpt2-inner float32 1GB 5 float32 0
llama llama float32 1GB 6 float32 0
llama3 llama3 float32 1GB 7 float32 0
tied llama-tied float32 1GB 8 float32 0
masked bert float32 1GB 9 float32 0
labels bert-labels float32 1GB 10 float32 0
END
cat >make.py <<'PY'
from kinds import *
for line in open("cases"):
    name, kind, dtype, size, seed, _, _ = line.split()
    torch.manual_seed(int(seed))
    cls, config = kinds[kind]
    model = cls(config)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn(p.shape) * 0.1)
    model.to(getattr(torch, dtype)).save_pretrained(name, max_shard_size=size)
PY
# Logits of the first model against those printed (of the last of every number of tokens, or
# of all for bert), and the second one's tensors.
cat >compare.py <<'PY'
from kinds import *
def compare(name, kind):
    cls, bert = kinds[kind][0], kind.startswith("bert")
    a = cls.from_pretrained(name, dtype=torch.float32).eval()
    b, info = cls.from_pretrained(name + "-out", dtype=torch.float32, output_loading_info=True)
    b.eval()
    assert not any(info[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
    off, lines = 0, 0
    for line in open(name + ".txt"):
        n, *values = line.split()
        x = inputs(kind, int(n))
        with torch.no_grad():
            want, again = a(**x).logits, b(**x).logits
        assert torch.equal(want, again), "logits of what was written"
        want = want if bert else want[:, -1]
        got = torch.tensor([float(v) for v in values]).reshape(want.shape)
        off, lines = max(off, (want - got).abs().max().item()), lines + 1
    assert lines == (1 if bert else 40), f"{lines} lines"
    assert off < 1e-4, f"logits are off by {off}"
    x, y = a.state_dict(), b.state_dict()
    assert x.keys() == y.keys() and all(torch.equal(x[k], y[k]) for k in x), "tensors"
    return f"# {name}: logits off by {off:.1e}"
for line in open("cases"):
    name, kind = line.split()[:2]
    try:
        print(compare(name, kind))
        open(name + ".equal", "w").write("equal")
    except (AssertionError, OSError, ValueError, KeyError, RuntimeError) as why:
        print(f"# {name}: {why}")
PY

"$python" make.py >make.log 2>&1
ok $? "transformers saves the models" || bail_out "$(tail -n 3 make.log)"
while read -r name _ _ _ _ dtype bytes; do
    "$ACCEL_BUILD/tests/helpers/weights" "$name" "$name-out" "$dtype" "$bytes" 40 \
        "$name-work" >"$name.txt" 2>"$name.log" </dev/null
    ok $? "$name: read and written" || diag "$(cat "$name.log")"
done <cases
"$python" compare.py 2>compare.log || diag "$(tail -n 3 compare.log)"
while read -r name _; do
    [ -e "$name.equal" ]
    ok $? "$name: the same logits, and transformers loads the same bits"
done <cases
done_testing
