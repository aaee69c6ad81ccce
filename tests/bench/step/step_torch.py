# SPDX-License-Identifier: Apache-2.0
#
# The same training step in torch, on request (see peer.h): GPT-2 124M or a Llama of 56 M,
# AdamW (fused), float32, or 16 bits by autocast.   step_torch.py DTYPE BATCH TIME THREADS MODEL
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


class LlamaBlock(nn.Module):
    HEADS, KV_HEADS, WIDTH, HIDDEN = 8, 4, 512, 1408

    def __init__(self):
        super().__init__()
        size = self.WIDTH // self.HEADS * self.KV_HEADS
        self.norm_1, self.norm_2 = nn.RMSNorm(self.WIDTH, 1e-6), nn.RMSNorm(self.WIDTH, 1e-6)
        self.q, self.o = (nn.Linear(self.WIDTH, self.WIDTH, bias=False) for _ in range(2))
        self.k, self.v = (nn.Linear(self.WIDTH, size, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(self.WIDTH, self.HIDDEN, bias=False) for _ in range(2))
        self.down = nn.Linear(self.HIDDEN, self.WIDTH, bias=False)

    def forward(self, x, cos, sin):
        b, t, c = x.shape
        y = self.norm_1(x)
        q, k, v = (f(y).view(b, t, -1, c // self.HEADS).transpose(1, 2)
                   for f in (self.q, self.k, self.v))
        q, k = (z * cos + torch.cat((-z[..., z.shape[-1] // 2:], z[..., :z.shape[-1] // 2]), -1)
                * sin for z in (q, k))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.o(y.transpose(1, 2).reshape(b, t, c))
        y = self.norm_2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    VOCAB, LAYERS = 32000, 8

    def __init__(self):
        super().__init__()
        width = LlamaBlock.WIDTH
        self.embed, self.head = nn.Embedding(self.VOCAB, width), nn.Linear(width, self.VOCAB, False)
        self.h = nn.ModuleList(LlamaBlock() for _ in range(self.LAYERS))
        self.norm = nn.RMSNorm(width, 1e-6)
        half = width // LlamaBlock.HEADS // 2
        angle = torch.arange(1024)[:, None] * 10000.0 ** (-torch.arange(half) / half)
        self.register_buffer("cos", torch.cat((angle, angle), -1).cos())
        self.register_buffer("sin", torch.cat((angle, angle), -1).sin())
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids, targets):
        x, t = self.embed(ids), ids.shape[1]
        for block in self.h:
            x = block(x, self.cos[:t], self.sin[:t])
        return F.cross_entropy(self.head(self.norm(x)).view(-1, self.VOCAB), targets.view(-1))


def main():
    dtype, batch, length, threads = sys.argv[1], *map(int, sys.argv[2:5])
    vocab = Llama.VOCAB if sys.argv[5] == "llama" else VOCAB
    if threads > 0:
        torch.set_num_threads(threads)
    narrow = torch.float16 if dtype == "float16" else torch.bfloat16
    torch.manual_seed(1)
    model = Llama() if sys.argv[5] == "llama" else GPT2()
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
        ids, targets = i * 7919 % vocab, (i + 1) * 7919 % vocab
        a = time.perf_counter()
        with torch.autocast("cpu", narrow, enabled=dtype != "float32"):
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
