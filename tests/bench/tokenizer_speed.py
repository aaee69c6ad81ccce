#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# Speed of accel's tokenizer beside the tokenizers library's, in one process, on one thread,
# by turns: MB of text per second, medians, for one long text and for pieces of 8 KB.
#     tokenizer_speed.py LIBACCEL.so TOKENIZER.json TEXT [PASSES]
import ctypes
import os
import statistics
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
import tokenizers  # noqa: E402

library, path, text_path = sys.argv[1:4]
passes = int(sys.argv[4]) if len(sys.argv) > 4 else 7
lib = ctypes.CDLL(library)
lib.accel_tokenize.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t,
                               ctypes.c_uint, ctypes.c_void_p, ctypes.c_size_t,
                               ctypes.c_void_p, ctypes.c_void_p]
ours = ctypes.c_void_p()
start = time.perf_counter()
if lib.accel_tokenizer_open(ctypes.byref(ours), path.encode(), None):
    sys.exit(f"accel cannot open {path}")
opened = time.perf_counter()
theirs = tokenizers.Tokenizer.from_file(path)
print(f"tokenizers {tokenizers.__version__}; open: accel {(opened - start) * 1e3:.0f} ms, "
      f"library {(time.perf_counter() - opened) * 1e3:.0f} ms")

with open(text_path, encoding="utf-8", newline="") as f:
    text = f.read()
mb = len(text.encode()) / 1e6
pieces = [text[i:i + 8000] for i in range(0, len(text), 8000)]
raw = [p.encode() for p in pieces]
whole = text.encode()
ids = (ctypes.c_int32 * (2 * len(whole) + 1))()
count = ctypes.c_size_t()


def encode(part):
    lib.accel_tokenize(ours, part, len(part), 0, ids, len(ids), ctypes.byref(count), None)
    return count.value


runs = {
    "accel, one text": lambda: encode(whole),
    "library, one text": lambda: len(theirs.encode(text, add_special_tokens=False)),
    "accel, pieces": lambda: sum(encode(p) for p in raw),
    "library, pieces": lambda: sum(
        len(e) for e in theirs.encode_batch_fast(pieces, add_special_tokens=False)),
}
taken = {name: [] for name in runs}
result = {}
for _ in range(passes):
    for name, run in runs.items():
        start = time.process_time()  # of a busy machine, what this process got
        result[name] = run()
        taken[name].append(time.process_time() - start)
for name in runs:
    speed = sorted(mb / t for t in taken[name])
    print(f"{name:18} {statistics.median(speed):8.2f} MB/s "
          f"({speed[0]:.2f} to {speed[-1]:.2f}), {result[name]} ids")
for way in "one text", "pieces":
    if result[f"accel, {way}"] != result[f"library, {way}"]:
        sys.exit(f"{way}: different numbers of ids")
    ratio = statistics.median(b / a for a, b in zip(taken[f"accel, {way}"],
                                                    taken[f"library, {way}"]))
    print(f"{way}: accel is {ratio:.2f} times as fast")
