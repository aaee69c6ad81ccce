#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# Tokens per second of examples/train on one GPU beside torch.compile of the same model, in
# the same run, by turns; medians of the steps after the first ones, with the clocks and the
# power of the device while they ran. Then how much of a step no kernel ran, by CUPTI's trace.
# A case that ends in :fp8 is measured in fp8, beside accel's own bf16.
#     train_gpu.py TRAIN [--trace LIBRARY] [--steps N] [--turns N] [MODEL:BATCHxTIME[:recompute][:fp8] ...]
# torch comes from the Python that runs this; without it accel's figures stand alone.
# --device cpu compares on the CPU, to try this program itself.
import argparse
import glob
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading

CASES = ["gpt2:32x1024", "gpt2-xl:8x1024", "llama-3-8b:1x8192:recompute",
         "llama-3-8b:1x8192:recompute:fp8"]
TARGET = {"gpt2": 400e3, "gpt2-xl": 45e3, "llama-3-8b": 6e3}
LAYERS = {"gpt2": 12, "gpt2-xl": 48, "gpt2-tiny": 2, "llama-3-8b": 32}
LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 128256,
         "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
         "num_key_value_heads": 8, "max_position_embeddings": 8192, "rope_theta": 500000.0,
         "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "hidden_act": "silu"}
# Parameters of the embedding and head, and of a block; bytes of each with float32 masters,
# gradients and two moments, and the bfloat16 copy.
LLAMA_ENDS, LLAMA_BLOCK, BYTES = 2 * 128256 * 4096, 218112000, 18
WARM_UP = 5

CONFIG = """distributed_type: FSDP
mixed_precision: {precision}
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


def smi(query):
    """The first GPU's numbers, or None."""
    try:
        text = subprocess.run(["nvidia-smi", "--query-gpu=" + query,
                               "--format=csv,noheader,nounits"],
                              capture_output=True, text=True, check=True).stdout
        return [float(x) for x in text.splitlines()[0].split(",")]
    except (OSError, subprocess.CalledProcessError, ValueError, IndexError):
        return None


class Watch(threading.Thread):
    """Clocks (MHz) and power (W) of the device while something runs."""

    def __init__(self):
        super().__init__(daemon=True)
        self.rows, self.done = [], threading.Event()

    def run(self):
        while not self.done.wait(0.5):
            row = smi("clocks.sm,clocks.mem,power.draw")
            if not row:
                return
            self.rows.append(row)

    def text(self):
        self.done.set()
        if not self.rows:
            return "clocks and power unknown"
        sm, mem, watt = (statistics.median(c) for c in zip(*self.rows))
        return f"SM {sm:.0f} MHz, memory {mem:.0f} MHz, {watt:.0f} W"


class Case:
    """MODEL:BATCHxTIME[:recompute][:fp8]; of Llama as many blocks as the device has memory for."""

    def __init__(self, text):
        self.text = text
        self.model, shape, *rest = text.split(":")
        self.batch, self.length = (int(x) for x in shape.split("x"))
        self.recompute, self.fp8 = "recompute" in rest, "fp8" in rest
        if not set(rest) <= {"recompute", "fp8"}:
            sys.exit(f"{text}: neither recompute nor fp8")
        self.layers = LAYERS[self.model]
        self.target = TARGET.get(self.model, 0)
        if self.model == "llama-3-8b":
            self.fit((smi("memory.total") or [0])[0] * 2**20)

    def fit(self, memory):
        whole = LLAMA_ENDS + self.layers * LLAMA_BLOCK
        room = int((0.9 * memory / BYTES - LLAMA_ENDS) / LLAMA_BLOCK)
        if memory:
            self.layers = max(1, min(self.layers, room))
        self.target *= whole / (LLAMA_ENDS + self.layers * LLAMA_BLOCK)

    def options(self, folder):
        if self.model == "gpt2-tiny":
            return [f"--layers={self.layers}", "--heads=2", "--width=64", "--vocab=50257"]
        if self.model != "llama-3-8b":
            return ["--model", self.model]
        path = os.path.join(folder, "config.json")
        with open(path, "w", encoding="ascii") as f:
            json.dump({**LLAMA, "num_hidden_layers": self.layers}, f)
        return ["--model", path]


def own(args, case, folder, more=None, precision=None):
    """Seconds of the steps and the peak, or why there are none."""
    config, data = os.path.join(folder, "run.yaml"), os.path.join(folder, "bytes")
    with open(config, "w", encoding="ascii") as f:
        f.write(CONFIG.format(cpu=str(args.device == "cpu").lower(),
                              precision=precision or ("fp8" if case.fp8 else "bf16"),
                              recompute=str(case.recompute).lower()))
    with open(data, "wb") as f:
        f.write(os.urandom(max(1 << 20, 8 * case.batch * (case.length + 1))))
    out = tempfile.mkdtemp(dir=folder)
    environment = {"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
                   **os.environ, "ACCEL_CONFIG": config, **(more or {})}
    run = subprocess.run(
        [args.train, "--data", data, *case.options(folder), "--batch", str(case.batch),
         "--seq", str(case.length), "--steps", str(args.steps), "--sample", "0", "--out", out],
        env=environment, capture_output=True, text=True, check=False)
    if run.returncode:
        return f"failed: {run.stderr.strip()[-300:]}", 0
    with open(os.path.join(out, "log.jsonl"), encoding="ascii") as f:
        steps = [json.loads(line) for line in f][WARM_UP:]
    return [s["step_ms"] / 1e3 for s in steps], steps[-1]["mem_peak_bytes"]


def peer(args, case):
    if not importlib.util.find_spec("torch"):
        return "not installed", 0
    program = os.path.join(os.path.dirname(__file__), "gpu", "train_torch.py")
    numbers = [case.layers, case.batch, case.length, int(case.recompute), args.steps, WARM_UP]
    run = subprocess.run([sys.executable, program, case.model, *map(str, numbers), args.device],
                         capture_output=True, text=True, check=False)
    if run.returncode:
        return f"failed: {run.stderr.strip()[-300:]}", 0
    answer = json.loads(run.stdout.splitlines()[-1])
    return answer["seconds"], answer["peak"]


def cupti_folders():
    """Where toolkits and Python packages keep libcupti."""
    places = ["/usr/local/cuda/extras/CUPTI/lib64", "/usr/local/cuda/lib64"]
    spec = importlib.util.find_spec("nvidia")
    for root in (spec.submodule_search_locations or []) if spec else []:
        places += [os.path.dirname(p) for p in glob.glob(f"{root}/**/libcupti.so*",
                                                         recursive=True)]
    return ":".join(places)


def trace(args, case, folder, median):
    times = os.path.join(folder, "kernel-times")
    path = ":".join(filter(None, [os.environ.get("LD_LIBRARY_PATH"), cupti_folders()]))
    seconds, _ = own(args, case, folder, {"CUDA_INJECTION64_PATH": os.path.abspath(args.trace),
                                          "KERNEL_TIMES": times, "LD_LIBRARY_PATH": path})
    if isinstance(seconds, str) or not os.path.exists(times):
        print("  trace  none: " + (seconds if isinstance(seconds, str) else "no libcupti"))
        return
    with open(times, encoding="ascii") as f:
        span, kernels, busy = (float(x) for x in f.read().split())
    traced = statistics.median(seconds)
    print(f"  trace  no kernel {100 * (1 - kernels / span):.2f} % of the second half's time"
          f" (goal 2), neither kernel nor copy {100 * (1 - busy / span):.2f} %;"
          f" the trace makes a step {100 * (traced / median - 1):.1f} % longer", flush=True)


def line(name, case, seconds, peak, watch):
    if isinstance(seconds, str):
        print(f"  {name:6} {seconds}")
        return 0.0
    rate = case.batch * case.length / statistics.median(seconds)
    print(f"  {name:6} {rate:10.0f} tokens/s  median {statistics.median(seconds) * 1e3:8.2f} ms"
          f"  ({min(seconds) * 1e3:.2f} to {max(seconds) * 1e3:.2f})"
          f"  peak {peak / 2**30:.2f} GiB  {watch.text()}", flush=True)
    return rate


def compare(args, case, folder):
    """Prints the case; False: accel did not run."""
    ran = True
    other = "bf16" if case.fp8 else "torch"
    print(f"== {case.text}, {case.layers} of {LAYERS[case.model]} blocks, "
          f"{'fp8' if case.fp8 else 'bf16'}, AdamW, {args.steps} steps", flush=True)
    for turn in range(args.turns):
        rates = []
        for name in "accel", other:
            watch = Watch()
            watch.start()
            seconds, peak = (peer(args, case) if name == "torch" else
                             own(args, case, folder, precision="bf16" if name == other else None))
            rates.append(line(name, case, seconds, peak, watch))
            watch.done.set()
            ran = ran and rates[0] > 0
            if name == "accel" and turn == 0 and args.trace and rates[0]:
                trace(args, case, folder, statistics.median(seconds))
        if rates[0] and case.target and args.device == "cuda":
            print(f"  accel is {rates[0] / case.target:.2f} x the target of {case.target:.0f}"
                  " for as many parameters")
        if all(rates):
            print(f"  accel is {rates[0] / rates[1]:.2f} x "
                  + ("its own bf16 (goal 1.2)" if case.fp8 else "torch.compile"), flush=True)
    return ran


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("train")
    parser.add_argument("--trace", help="kernel_times.so; without it no trace is made")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("cases", nargs="*", default=CASES)
    args = parser.parse_intermixed_args()
    if args.steps <= WARM_UP:
        parser.error(f"--steps: more than the {WARM_UP} that are not counted")
    with tempfile.TemporaryDirectory() as folder:
        ran = [compare(args, Case(text), folder) for text in args.cases]
    return 0 if all(ran) else 1


sys.exit(main())
