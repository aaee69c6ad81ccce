#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# From exec of examples/train --model DIR to its first step, GPT-2 124M from safetensors in
# float32 and bfloat16, against reading that file into new memory. `start` is the time to
# the end of the first step less that step as the log has it; `strict` is less the second
# step, so that nothing can hide in the first. With $ACCEL_TORCH_PYTHON: the same for
# from_pretrained of transformers. By turns, medians.   start_time.py [BUILD] [RUNS]
import json
import os
import re
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time

here = os.path.dirname(os.path.abspath(__file__))
build = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "../..")
runs = int(sys.argv[2]) if len(sys.argv) > 2 else 7
train = os.path.join(build, "examples/train")
python = os.environ.get("ACCEL_TORCH_PYTHON")
tmp = tempfile.mkdtemp(prefix="accel-bench.")

# A process of its own, as the trainer is: new memory, and one thread. It prints its time.
READ = """
import mmap, os, sys, time
fd = os.open(sys.argv[1], os.O_RDONLY)
size = os.fstat(fd).st_size
start = time.perf_counter()
room = mmap.mmap(-1, size)
if len(sys.argv) > 2:
    room.madvise(mmap.MADV_HUGEPAGE)
view, at = memoryview(room), 0
while at < size:
    at += os.preadv(fd, [view[at:at + (1 << 24)]], at)
print(time.perf_counter() - start)
"""

TORCH = """
import sys, time, torch
from transformers import GPT2LMHeadModel
torch.set_num_threads(int(sys.argv[2]))
model = GPT2LMHeadModel.from_pretrained(sys.argv[1], dtype=torch.float32)
optimizer = torch.optim.AdamW(model.parameters())
ids = torch.zeros((1, 64), dtype=torch.long)
for step in range(2):
    start = time.perf_counter()
    model(ids, labels=ids).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step + 1}/2 {(time.perf_counter() - start) * 1e3:.0f} ms", flush=True)
"""


def first_step(argv):
    """Seconds to the end of step 1, and of the steps 1 and 2."""
    start, end, ms = time.perf_counter(), None, {}
    with subprocess.Popen(argv, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT) as p:
        for line in p.stdout:
            m = re.match(r"step (\d)/\d+ .*?([\d.]+) ms", line)
            if not m:
                continue
            end = end or time.perf_counter()
            ms[int(m[1])] = float(m[2]) / 1e3
            if int(m[1]) == 2:
                p.kill()
                break
    if len(ms) < 2:
        sys.exit(f"{argv[0]} made no two steps")
    return end - start, ms[1], ms[2]


def ours(model):
    shutil.rmtree(f"{tmp}/out", ignore_errors=True)
    return first_step([train, "--model", model, "--data", f"{tmp}/text", "--seq", "64",
                       "--batch", "1", "--steps", "100", "--sample", "0",
                       "--out", f"{tmp}/out"])


def theirs(model):
    return first_step([python, "-c", TORCH, model, str(len(os.sched_getaffinity(0)))])


def plain(model, *huge):
    return float(subprocess.check_output(
        [sys.executable, "-c", READ, f"{model}/model.safetensors", *huge]))


def halve(model, to):
    """The same weights in bfloat16, the lower half of every number cut off."""
    os.mkdir(to)
    shutil.copy(f"{model}/config.json", to)
    with open(f"{model}/model.safetensors", "rb") as f:
        (size,) = struct.unpack("<Q", f.read(8))
        head, data = json.loads(f.read(size)), f.read()
    for name, t in head.items():
        if name != "__metadata__":
            t["dtype"] = "BF16"
            t["data_offsets"] = [v // 2 for v in t["data_offsets"]]
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    half = bytearray(len(data) // 2)
    half[0::2], half[1::2] = data[2::4], data[3::4]
    with open(f"{to}/model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + half)


def row(name, values, base):
    v = statistics.median(values)
    print(f"{name:28} {v * 1e3:8.0f} ms   best {min(values) * 1e3:6.0f} ms   "
          f"{v / base:6.2f} x the read", flush=True)


def main():
    with open(f"{tmp}/text", "w", encoding="ascii") as f:
        f.write("the quick brown fox jumps over the lazy dog\n" * 400)
    subprocess.run([train, "--model", "gpt2", "--data", f"{tmp}/text", "--seq", "64",
                    "--batch", "1", "--steps", "1", "--sample", "0", "--out",
                    f"{tmp}/out", "--save", f"{tmp}/float32"], check=True,
                   stderr=subprocess.DEVNULL)
    halve(f"{tmp}/float32", f"{tmp}/bfloat16")
    for dtype in "float32", "bfloat16":
        model = f"{tmp}/{dtype}"
        read, huge, own, peer = [], [], [], []
        for _ in range(runs):
            read.append(plain(model))
            huge.append(plain(model, "huge"))
            own.append(ours(model))
            if python:
                peer.append(theirs(model))
        size = os.path.getsize(f"{model}/model.safetensors")
        base = statistics.median(read)
        print(f"== {dtype}, {size / 1e6:.0f} MB in the page cache, {runs} runs in turn")
        row("plain read", read, base)
        row("plain read, huge pages", huge, base)
        for name, list_ in ("accel", own), ("transformers", peer):
            if list_:
                row(f"{name}: start", [t[0] - t[1] for t in list_], base)
                row(f"{name}: strict", [t[0] - t[2] for t in list_], base)
                row(f"{name}: first step", [t[1] for t in list_], base)
                row(f"{name}: second step", [t[2] for t in list_], base)


try:
    main()
finally:
    shutil.rmtree(tmp, ignore_errors=True)
