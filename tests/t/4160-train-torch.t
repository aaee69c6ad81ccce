#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# 300 steps beside torch: the same weights, the same batches, AdamW with the same schedule and
# clipping. A batch is the whole data, so that its order does not matter.
# shellcheck source=tests/t/tap.sh
. "$(dirname "$0")/tap.sh"
# shellcheck source=tests/t/train.sh
. "$(dirname "$0")/train.sh"
# shellcheck source=tests/t/torch.sh
. "$(dirname "$0")/torch.sh"

tap_tmpdir
need_torch "transformers"
train_text all.txt
head -c 4097 all.txt >data.txt # 64 samples of 64 bytes, and one byte more

cat >curve.py <<'PY'
import json, math, sys, torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
kind, steps, warmup, peak = sys.argv[1], 300, 20, 3e-4
torch.manual_seed(5)
if kind == "gpt2":
    model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=4, n_embd=64, n_positions=64,
        vocab_size=256, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0,
        eos_token_id=0))
else:
    model = LlamaForCausalLM(LlamaConfig(num_hidden_layers=2, hidden_size=64,
        intermediate_size=176, num_attention_heads=4, num_key_value_heads=2, vocab_size=256,
        max_position_embeddings=64, tie_word_embeddings=False))
model.save_pretrained(kind)
data = torch.tensor(list(open("data.txt", "rb").read()))
ids, targets = data[:-1].reshape(64, 64), data[1:].reshape(64, 64)
some = [p for p in model.parameters() if p.ndim >= 2]
rest = [p for p in model.parameters() if p.ndim < 2]
adamw = torch.optim.AdamW([dict(params=some, weight_decay=0.1), dict(params=rest,
    weight_decay=0.0)], lr=peak, betas=(0.9, 0.95), eps=1e-8)
with open(kind + ".jsonl", "w") as log:
    for step in range(1, steps + 1):
        part = (step - warmup) / (steps - warmup)
        lr = peak * step / warmup if step <= warmup else \
            0.1 * peak + 0.9 * peak * 0.5 * (1 + math.cos(math.pi * part))
        for group in adamw.param_groups:
            group["lr"] = lr
        logits = model(ids).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        adamw.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adamw.step()
        log.write('{"step":%d,"loss":%.9g,}\n' % (step, loss.item()))
PY

for kind in gpt2 llama; do
    "$python" curve.py $kind >said 2>&1
    ok $? "$kind: 300 steps of torch" || diag "$(tail -n 5 said)"
    "$TRAIN" --model ./$kind --data data.txt --seq 64 --batch 64 --steps 300 --warmup 20 \
        --lr 3e-4 --weight-decay 0.1 --clip 1 --sample 0 --out out-$kind >said 2>&1
    ok $? "$kind: 300 steps of accel" || diag "$(tail -n 5 said)"
    head -n 1 $kind.jsonl >first.torch
    head -n 1 out-$kind/log.jsonl >first.accel
    close_losses first.torch first.accel 1 1e-5 "$kind: the loss of step 1"
    close_losses $kind.jsonl out-$kind/log.jsonl 300 1e-2 "$kind: the losses of 300 steps"
    fell=$(losses out-$kind/log.jsonl | awk 'NR == 1 { a = $2 } { b = $2 } END { print (b < a * 0.6) }')
    is "$fell" 1 "$kind: it has learnt"
done
done_testing
