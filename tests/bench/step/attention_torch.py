#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# Attention beside torch's scaled_dot_product_attention, in turns, medians:
#     attention_torch.py BENCH_ATTENTION [threads] [repeats]
# Both start from fused q, k, v and end at the gradient of the fused tensor.
import os
import statistics
import subprocess
import sys
import time

import torch

bench = sys.argv[1]
threads = int(sys.argv[2]) if len(sys.argv) > 2 else len(os.sched_getaffinity(0))
repeats = int(sys.argv[3]) if len(sys.argv) > 3 else 15
torch.set_num_threads(threads)
own = subprocess.Popen([bench, str(threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                       text=True)
print("own:", own.stdout.readline().strip(), " torch", torch.__version__)


def torch_once(b, t):
    qkv = torch.randn(b, t, 3 * 768).requires_grad_()
    dout = torch.randn(b, t, 768)
    for _ in range(2):
        qkv.grad = None
        start = time.perf_counter()
        q, k, v = (x.view(b, t, 12, 64).transpose(1, 2) for x in qkv.split(768, 2))
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = y.transpose(1, 2).reshape(b, t, 768)
        middle = time.perf_counter()
        y.backward(dout)
        end = time.perf_counter()
    return (middle - start) * 1e3, (end - middle) * 1e3


for b, t in (4, 64), (4, 256), (1, 1024):
    rows = []
    for _ in range(repeats):
        own.stdin.write(f"{b} {t}\n")
        own.stdin.flush()
        mine = tuple(float(x) for x in own.stdout.readline().split())
        rows.append(mine + torch_once(b, t))
    f, g, tf, tg = (statistics.median(c) for c in zip(*rows))
    print(f"B{b} T{t}: forward {f:.2f} ms, torch {tf:.2f} (x{f / tf:.2f});  "
          f"backward {g:.2f} ms, torch {tg:.2f} (x{g / tg:.2f})")
own.stdin.close()
own.wait()
