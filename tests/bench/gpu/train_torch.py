#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# The peer of train_gpu.py: the same models in PyTorch, torch.compile on a GPU, bf16 autocast,
# fused AdamW. Prints one line of JSON: seconds of the steps after the first ones, peak bytes.
#     train_torch.py MODEL LAYERS BATCH TIME RECOMPUTE STEPS WARM_UP DEVICE
import json
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

GPT2 = {"gpt2": (12, 768), "gpt2-xl": (25, 1600), "gpt2-tiny": (2, 64)}
VOCAB = 50257


class Block(nn.Module):
    def __init__(self, heads, width):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.c_out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2)
                   for y in self.c_attn(self.ln_1(x)).split(c, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.c_out(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    """The model of examples/train, as torch users write it."""

    def __init__(self, layers, heads, width):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCAB, width), nn.Embedding(1024, width)
        self.h = nn.ModuleList(Block(heads, width) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)

    def forward(self, ids, targets):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        for block in self.h:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, VOCAB), targets.reshape(-1))


class Llama(nn.Module):
    def __init__(self, layers, recompute):
        from transformers import LlamaConfig, LlamaForCausalLM

        super().__init__()
        self.net = LlamaForCausalLM(LlamaConfig(
            vocab_size=128256, hidden_size=4096, intermediate_size=14336,
            num_hidden_layers=layers, num_attention_heads=32, num_key_value_heads=8,
            max_position_embeddings=8192, rope_theta=500000.0, use_cache=False))
        if recompute:
            self.net.gradient_checkpointing_enable()

    def forward(self, ids, targets):
        logits = self.net(input_ids=ids).logits
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def main():
    model = sys.argv[1]
    layers, batch, length, recompute, steps, warm_up = (int(x) for x in sys.argv[2:8])
    device = sys.argv[8]
    torch.manual_seed(1)
    with torch.device(device):
        net = Gpt2(layers, *GPT2[model]) if model in GPT2 else Llama(layers, recompute)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    step_net = torch.compile(net) if device == "cuda" else net
    ids = torch.randint(256, (batch, length + 1), device=device)
    seconds = []
    for _ in range(steps):
        start = time.perf_counter()
        with torch.autocast(device, torch.bfloat16):
            loss = step_net(ids[:, :-1], ids[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        seconds.append(time.perf_counter() - start)
    peak = torch.cuda.max_memory_allocated() if device == "cuda" else 0
    print(json.dumps({"seconds": seconds[warm_up:], "peak": peak}))


main()
