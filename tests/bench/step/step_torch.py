# SPDX-License-Identifier: Apache-2.0
#
# The same training step in torch, on request (see peer.h): GPT-2 124M, AdamW (fused),
# float32 or bfloat16 by autocast.   step_torch.py DTYPE BATCH TIME THREADS
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

LAYERS, HEADS, WIDTH, CONTEXT, VOCAB = 12, 12, 768, 1024, 50304


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.c_attn, self.c_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.c_fc, self.c_out = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (
            y.view(b, t, HEADS, c // HEADS).transpose(1, 2)
            for y in self.c_attn(self.ln_1(x)).split(c, dim=2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.c_out(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCAB, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.h = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f = nn.LayerNorm(WIDTH)
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids, targets):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
        for block in self.h:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, VOCAB), targets.view(-1))


def main():
    dtype, batch, length, threads = sys.argv[1], *map(int, sys.argv[2:5])
    if threads > 0:
        torch.set_num_threads(threads)
    torch.manual_seed(1)
    model = GPT2()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True
    )
    step = 0
    capability = torch.backends.cpu.get_cpu_capability()
    print(f"ready torch {torch.__version__}, {capability}, {torch.get_num_threads()} threads",
          flush=True)
    for line in sys.stdin:
        if line == "report\n":
            print("end", flush=True)
            continue
        i = torch.arange(batch * length).view(batch, length) + step * 31
        ids, targets = i * 7919 % VOCAB, (i + 1) * 7919 % VOCAB
        a = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bfloat16"):
            loss = model(ids, targets)
        b = time.perf_counter()
        loss.backward()
        c = time.perf_counter()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        d = time.perf_counter()
        step += 1
        print(f"step {(b - a) * 1e3:.3f} {(c - b) * 1e3:.3f} {(d - c) * 1e3:.3f}", flush=True)


main()
