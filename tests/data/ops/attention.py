#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# Writes attention.golden and rope.golden beside itself: what torch and transformers compute
# in double from the values of rig_random() (tests/world/op_rig.c), for test_attention and
# test_rope. Runs by hand only.
import os
import struct

import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

HERE = os.path.dirname(os.path.abspath(__file__))
STATE = 0


def rig_seed(seed):
    global STATE
    STATE = seed


def rig_random(n, size):
    global STATE
    out = []
    for _ in range(n):
        STATE = (STATE * 6364136223846793005 + 1442695040888963407) % 2**64
        v = ((STATE >> 33) / 2147483648.0 - 0.5) * size
        out.append(struct.unpack("f", struct.pack("f", v))[0])
    return torch.tensor(out, dtype=torch.float64)


def line(f, name, t):
    t = t.detach().flatten()
    step = t.numel() // 40 + 1
    f.write(name + " " + " ".join(f"{v:.9g}" for v in t[::step].tolist()) + "\n")


def attention(f, b, t, s, h, k, d, causal, padded):
    rig_seed(11)
    q = rig_random(b * t * h * d, 3).view(b, t, h, d).requires_grad_()
    key = rig_random(b * s * k * d, 3).view(b, s, k, d).requires_grad_()
    value = rig_random(b * s * k * d, 3).view(b, s, k, d).requires_grad_()
    weight = rig_random(b * t * h * d, 1).view(b, t, h * d)
    see = torch.ones(b, 1, t, s, dtype=torch.bool)
    if causal:
        see &= torch.ones(t, s, dtype=torch.bool).tril(s - t)
    if padded:  # sample i has s - i keys
        for i in range(b):
            see[i, :, :, s - i:] = False
    y = torch.nn.functional.scaled_dot_product_attention(
        q.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), attn_mask=see,
        enable_gqa=h != k)
    y = y.transpose(1, 2).reshape(b, t, h * d)
    (y * weight).sum().backward()
    f.write(f"case {b} {t} {s} {h} {k} {d} {int(causal)} {int(padded)}\n")
    for name, x in ("out", y), ("dq", q.grad), ("dk", key.grad), ("dv", value.grad):
        line(f, name, x)


def rope(f, kind, b, t, heads, d, first, theta, factor, low, high, context):
    scaling = {0: {"rope_type": "default"},
               1: {"rope_type": "linear", "factor": factor},
               2: {"rope_type": "llama3", "factor": factor, "low_freq_factor": low,
                   "high_freq_factor": high, "original_max_position_embeddings": context}}[kind]
    config = LlamaConfig(hidden_size=heads * d, num_attention_heads=heads, head_dim=d,
                         max_position_embeddings=131072)
    try:  # transformers 5
        config.rope_parameters = dict(scaling, rope_theta=theta)
        config.rope_theta = theta
        table = LlamaRotaryEmbedding(config)
    except (AttributeError, KeyError):
        config.rope_theta, config.rope_scaling = theta, scaling
        table = LlamaRotaryEmbedding(config)
    rig_seed(11)
    x = rig_random(b * t * heads * d, 3).view(b, t, heads, d).requires_grad_()
    weight = rig_random(b * t * heads * d, 1).view(b, t, heads, d)
    # The angles in double, from the float32 frequencies.
    angle = torch.outer(torch.arange(first, first + t).double(), table.inv_freq.double())
    angle = torch.cat((angle, angle), -1)[None]
    y, _ = apply_rotary_pos_emb(x.transpose(1, 2), x.transpose(1, 2), angle.cos(), angle.sin())
    y = y.transpose(1, 2)
    (y * weight).sum().backward()
    f.write(f"case {kind} {b} {t} {heads} {d} {first} {theta} {factor} {low} {high} {context}\n")
    f.write("freq " + " ".join(f"{v:.9g}" for v in table.inv_freq.tolist()) + "\n")
    line(f, "out", y)
    line(f, "dx", x.grad)


with open(os.path.join(HERE, "attention.golden"), "w") as out:
    for case in [(1, 1, 1, 1, 1, 1, 1, 0), (2, 67, 67, 4, 2, 7, 1, 0), (1, 65, 65, 2, 2, 64, 1, 0),
                 (2, 37, 101, 6, 3, 16, 0, 0), (3, 31, 70, 2, 1, 80, 1, 1),
                 (3, 66, 66, 3, 3, 13, 0, 1), (1, 130, 130, 2, 1, 128, 0, 0)]:
        attention(out, *case)
with open(os.path.join(HERE, "rope.golden"), "w") as out:
    for case in [(0, 1, 1, 1, 2, 0, 10000.0, 1, 1, 4, 8192), (0, 2, 7, 3, 10, 0, 10000.0, 1, 1, 4, 8192),
                 (0, 1, 5, 2, 64, 8000, 500000.0, 1, 1, 4, 8192),
                 (1, 2, 5, 2, 80, 3, 10000.0, 4, 1, 4, 8192),
                 (2, 1, 5, 2, 128, 60000, 500000.0, 8, 1, 4, 8192),
                 (2, 1, 3, 1, 64, 100, 500000.0, 32, 1, 4, 8192)]:
        rope(out, *case)
