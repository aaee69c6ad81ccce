#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# Makes the golden files of this directory with torch, transformers and safetensors: a small
# gpt2 with random weights as transformers saves it, whole and in shards, as older files
# have it, and its logits. In: nothing. Out: files beside this script.
import os

import torch
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel

here = os.path.dirname(os.path.abspath(__file__))
torch.manual_seed(3)
config = GPT2Config(
    n_layer=2, n_head=2, n_embd=8, n_positions=12, vocab_size=41,
    resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
)
model = GPT2LMHeadModel(config).eval()
with torch.no_grad():
    for p in model.parameters():  # also what begins as zeros and ones
        p.copy_(torch.randn(p.shape) * 0.3)
    ids = torch.tensor([[(7 * i + 3) % 41 for i in range(10)]])
    logits = model(ids).logits[0]
model.save_pretrained(os.path.join(here, "gpt2"))
save_file({"logits": logits.contiguous()}, os.path.join(here, "logits.safetensors"))
model.to(torch.bfloat16).save_pretrained(
    os.path.join(here, "gpt2-shards"), max_shard_size="2KB"
)

# Without the prefix, with the mask as a buffer and the head a second time.
model.to(torch.float32)
old = {}
for name, value in model.state_dict().items():
    old[name.removeprefix("transformer.")] = value.contiguous().clone()
for i in range(config.n_layer):
    old[f"h.{i}.attn.bias"] = torch.ones(1, 1, 12, 12, dtype=torch.uint8)
    old[f"h.{i}.attn.masked_bias"] = torch.tensor(-1e4)
os.makedirs(os.path.join(here, "gpt2-old"), exist_ok=True)
save_file(old, os.path.join(here, "gpt2-old", "model.safetensors"))
