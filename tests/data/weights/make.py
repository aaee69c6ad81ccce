#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# Makes the golden files of this directory with torch, transformers and safetensors: small
# models with random weights as transformers saves them, gpt2 also in shards and as older
# files have it, and their logits. In: nothing. Out: files beside this script.
import os

import torch
from safetensors.torch import save_file
from transformers import (
    BertConfig, BertForMaskedLM, BertForSequenceClassification, GPT2Config, GPT2LMHeadModel,
    LlamaConfig, LlamaForCausalLM,
)

here = os.path.dirname(os.path.abspath(__file__))
logits = {}
ids = torch.tensor([[(7 * i + 3) % 41 for i in range(10)]])


def make(name, model, **inputs):
    """Random values everywhere, also in what begins as zeros and ones."""
    torch.manual_seed(3)
    model.eval()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape) * 0.3)
        logits[name] = model(ids, **inputs).logits[0].contiguous()
    model.save_pretrained(os.path.join(here, name))
    return model


config = GPT2Config(
    n_layer=2, n_head=2, n_embd=8, n_positions=12, vocab_size=41,
    resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
)
rope = {
    "rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 8,
}
llama = dict(
    num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, hidden_size=16,
    intermediate_size=20, vocab_size=41, max_position_embeddings=16,
)
bert = dict(
    num_hidden_layers=2, num_attention_heads=2, hidden_size=8, intermediate_size=12,
    vocab_size=41, max_position_embeddings=12, hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0, classifier_dropout=0.0,
)
padded = {
    "token_type_ids": torch.tensor([[0] * 5 + [1] * 5]),
    "attention_mask": torch.tensor([[1] * 8 + [0] * 2]),
}
make("llama", LlamaForCausalLM(LlamaConfig(rope_scaling=rope, rope_theta=5000.0, **llama)))
make("llama-tied", LlamaForCausalLM(LlamaConfig(tie_word_embeddings=True, **llama)))
make("bert", BertForMaskedLM(BertConfig(**bert)), **padded)
make("bert-labels", BertForSequenceClassification(BertConfig(num_labels=3, **bert)), **padded)
model = make("gpt2", GPT2LMHeadModel(config))
save_file(logits, os.path.join(here, "logits.safetensors"))
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
