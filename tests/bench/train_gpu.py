#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# Tokens per second of examples/train on one GPU beside torch.compile of the same model, in
# the same run, by turns; medians of the steps after the first ones, with the clocks and the
# power of the device while they ran.
#     train_gpu.py TRAIN [--steps N] [--turns N] [MODEL:BATCHxTIME[:recompute] ...]
# torch comes from the Python that runs this; without it accel's figures stand alone.
# --device cpu compares on the CPU, to try this program itself.
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading

CASES = ["gpt2:32x1024", "gpt2-xl:8x1024", "llama-3-8b:1x8192:recompute"]
TARGET = {"gpt2": 400e3, "gpt2-xl": 45e3, "llama-3-8b": 6e3}
GPT2 = {"gpt2": (12, 12, 768), "gpt2-xl": (48, 25, 1600), "gpt2-tiny": (2, 2, 64)}
VOCAB = 50257
WARM_UP = 5

CONFIG = """distributed_type: FSDP
mixed_precision: bf16
use_cpu: {cpu}
num_machines: 1
num_processes: 1
fsdp_config:
  fsdp_version: 1
  fsdp_sharding_strategy: FULL_SHARD
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_activation_checkpointing: {recompute}
accel:
  checkpoint: {{save: false}}
"""


class Watch(threading.Thread):
    """Clocks (MHz) and power (W) of the device while something runs."""

    def __init__(self):
        super().__init__(daemon=True)
        self.rows, self.done = [], threading.Event()

    def run(self):
        query = ["nvidia-smi", "--query-gpu=clocks.sm,clocks.mem,power.draw",
                 "--format=csv,noheader,nounits"]
        while not self.done.wait(0.5):
            try:
                text = subprocess.run(query, capture_output=True, text=True, check=True).stdout
                self.rows.append([float(x) for x in text.splitlines()[0].split(",")])
            except (OSError, subprocess.CalledProcessError, ValueError):
                return

    def text(self):
        self.done.set()
        if not self.rows:
            return "clocks and power unknown"
        sm, mem, watt = (statistics.median(c) for c in zip(*self.rows))
        return f"SM {sm:.0f} MHz, memory {mem:.0f} MHz, {watt:.0f} W"


def own(args, case, folder):
    model, batch, length, recompute = case
    config, data = os.path.join(folder, "run.yaml"), os.path.join(folder, "bytes")
    with open(config, "w", encoding="ascii") as f:
        f.write(CONFIG.format(cpu=str(args.device == "cpu").lower(),
                              recompute=str(recompute).lower()))
    with open(data, "wb") as f:
        f.write(os.urandom(max(1 << 20, 8 * batch * (length + 1))))
    out = tempfile.mkdtemp(dir=folder)
    sizes = ["--model", model]
    if model == "gpt2-tiny":
        layers, heads, width = GPT2[model]
        sizes = [f"--layers={layers}", f"--heads={heads}", f"--width={width}",
                 f"--vocab={VOCAB}"]
    run = subprocess.run(
        [args.train, "--data", data, *sizes, "--batch", str(batch), "--seq", str(length),
         "--steps", str(args.steps), "--sample", "0", "--out", out],
        env={**os.environ, "ACCEL_CONFIG": config}, capture_output=True, text=True, check=False)
    if run.returncode:
        return f"failed: {run.stderr.strip()[-300:]}", 0
    with open(os.path.join(out, "log.jsonl"), encoding="ascii") as f:
        steps = [json.loads(line) for line in f][WARM_UP:]
    return [s["step_ms"] / 1e3 for s in steps], steps[-1]["mem_peak_bytes"]


def gpt2(torch, model):
    """The model of examples/train, as torch users write it."""
    from torch import nn
    from torch.nn import functional as F

    layers, heads, width = GPT2[model]

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.c_fc, self.c_out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            b, t, c = x.shape
            q, k, v = (y.view(b, t, heads, c // heads).transpose(1, 2)
                       for y in self.c_attn(self.ln_1(x)).split(c, dim=2))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.c_proj(y.transpose(1, 2).reshape(b, t, c))
            return x + self.c_out(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(VOCAB, width), nn.Embedding(1024, width)
            self.h = nn.ModuleList(Block() for _ in range(layers))
            self.ln_f = nn.LayerNorm(width)

        def forward(self, ids, targets):
            x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
            for block in self.h:
                x = block(x)
            logits = F.linear(self.ln_f(x), self.wte.weight)
            return F.cross_entropy(logits.view(-1, VOCAB), targets.reshape(-1))

    return Net()


def llama(torch, recompute):
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(vocab_size=128256, hidden_size=4096, intermediate_size=14336,
                         num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8,
                         max_position_embeddings=8192, rope_theta=500000.0, use_cache=False)
    net = LlamaForCausalLM(config)
    if recompute:
        net.gradient_checkpointing_enable()

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, ids, targets):
            logits = self.net(input_ids=ids).logits
            return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(),
                                                     targets.flatten())

    return Net()


def serve_torch(args):
    import time

    import torch

    model, batch, length, recompute = args.case
    device = args.device
    torch.manual_seed(1)
    with torch.device(device):
        net = gpt2(torch, model) if model in GPT2 else llama(torch, recompute)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    step_net = torch.compile(net) if device == "cuda" else net
    ids = torch.randint(256, (batch, length + 1), device=device)
    seconds = []
    for _ in range(args.steps):
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
    print(json.dumps({"seconds": seconds[WARM_UP:], "peak": peak,
                      "about": f"torch {torch.__version__}"}))


def peer(args, case):
    text = f"{case[0]}:{case[1]}x{case[2]}" + (":recompute" if case[3] else "")
    run = subprocess.run([sys.executable, __file__, args.train, "--torch", "--device",
                          args.device, "--steps", str(args.steps), text],
                         capture_output=True, text=True, check=False)
    if run.returncode:
        return f"failed: {run.stderr.strip()[-300:]}", 0
    answer = json.loads(run.stdout.splitlines()[-1])
    return answer["seconds"], answer["peak"]


def parse_case(text):
    model, shape, *rest = text.split(":")
    batch, length = (int(x) for x in shape.split("x"))
    return model, batch, length, rest == ["recompute"]


def line(name, case, seconds, peak, watch):
    if isinstance(seconds, str):
        print(f"  {name:6} {seconds}")
        return 0.0
    rate = case[1] * case[2] / statistics.median(seconds)
    print(f"  {name:6} {rate:10.0f} tokens/s  median {statistics.median(seconds) * 1e3:8.2f} ms"
          f"  ({min(seconds) * 1e3:.2f} to {max(seconds) * 1e3:.2f})"
          f"  peak {peak / 2**30:.2f} GiB  {watch.text()}", flush=True)
    return rate


def compare(args, text, folder):
    case = parse_case(text)
    print(f"== {text}, bf16, AdamW, {args.steps} steps", flush=True)
    for _ in range(args.turns):
        rates = []
        for name in "accel", "torch":
            watch = Watch()
            watch.start()
            seconds, peak = own(args, case, folder) if name == "accel" else peer(args, case)
            rates.append(line(name, case, seconds, peak, watch))
            watch.done.set()
        target = TARGET.get(case[0])
        if rates[0] and target and args.device == "cuda":
            print(f"  accel is {rates[0] / target:.2f} x the target of {target:.0f}")
        if all(rates):
            print(f"  accel is {rates[0] / rates[1]:.2f} x torch.compile", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("train")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--torch", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("cases", nargs="*", default=CASES)
    args = parser.parse_intermixed_args()
    if args.steps <= WARM_UP:
        parser.error(f"--steps: more than the {WARM_UP} that are not counted")
    if args.torch:
        args.case = parse_case(args.cases[0])
        serve_torch(args)
        return
    with tempfile.TemporaryDirectory() as folder:
        for text in args.cases:
            compare(args, text, folder)


main()
