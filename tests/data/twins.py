# SPDX-License-Identifier: Apache-2.0
"""The examples that draw their own initial values and samples, in PyTorch.

Usage: twins.py NAME RANKS STEPS TOTAL HASHES [FILE]

Prints "STEP LOSS" of the first STEPS of TOTAL steps. One process has the whole batch of
all ranks. Initial values, the order of samples and masks of dropout are drawn here from
what accel.h and doc/loaders.md say, without accel. HASHES has a line "NAME XXH3" for each
parameter, because PyTorch's Python may lack xxhash.
"""
import math
import sys

import numpy as np
import torch
from torch.nn import functional as F

U32 = np.uint64(0xFFFFFFFF)


def philox(key, stream, index):
    """Philox4x32-10 of Salmon et al. 2011: four words for every index."""
    index = np.asarray(index, dtype=np.uint64)
    c = [index & U32, index >> np.uint64(32), np.full_like(index, stream & 0xFFFFFFFF),
         np.full_like(index, stream >> 32)]
    k = [key & 0xFFFFFFFF, key >> 32]
    for _ in range(10):
        a, b = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [(b >> np.uint64(32)) ^ c[1] ^ np.uint64(k[0]), b & U32,
             (a >> np.uint64(32)) ^ c[3] ^ np.uint64(k[1]), a & U32]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return np.stack(c, -1)


def unit(words):
    return (words.astype(np.float64) + 0.5) * 2.0**-32


def initial(seed, hashed, shape, kind, scale):
    count = math.prod(shape)
    words = philox(seed, hashed, np.arange((count + 3) // 4))
    a, b = unit(words[:, 0::2]), unit(words[:, 1::2])
    if kind == "uniform":
        scale = np.float64(np.float32(scale))
        values = np.stack([(2 * a - 1) * scale, (2 * b - 1) * scale], -1)
    else:
        r = np.sqrt(-2 * np.log(a)) * np.float64(np.float32(scale))
        values = np.stack([r * np.cos(2 * np.pi * b), r * np.sin(2 * np.pi * b)], -1)
    return torch.tensor(values.reshape(-1)[:count].astype(np.float32)).reshape(shape)


def order(seed, samples, cursor):
    """The sample at place `cursor` of the run: a Feistel network for each epoch."""
    epoch, x = divmod(cursor, samples)
    k = 1
    while 1 << (2 * k) < samples:
        k += 1
    mask = (1 << k) - 1
    while True:
        left, right = x >> k, x & mask
        for turn in range(6):
            f = int(philox(seed, epoch, turn << 32 | right)[0]) & mask
            left, right = right, left ^ f
        x = left << k | right
        if x < samples:
            return x


def drop(x, seed, first, call, p):
    """Zeroes and scales x [samples, ...], of which the first is sample `first`."""
    per = x[0].numel()
    begin, end = first * per, (first + len(x)) * per
    words = philox(seed, 0x6D61736B << 32 | call, np.arange(begin // 4, (end + 3) // 4))
    words = words.reshape(-1)[begin % 4:][:end - begin]
    p32 = float(np.float32(p))
    keep = torch.tensor(words >= np.uint64(int(p32 * 2**32))).reshape(x.shape)
    return x * keep * np.float32(1 / (1 - p32)).item()


def splitmix(x):
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return x ^ x >> np.uint64(31)


def gelu(x):
    return F.gelu(x, approximate="tanh")


# ---- the examples -----------------------------------------------------------------

def gratings(index):
    """Pictures [B, 1, 16, 16] and classes, as examples/gratings.h makes them."""
    index = np.array(index, dtype=np.uint64)

    def draw(n):
        return (splitmix(index * np.uint64(1024) + np.uint64(n)) >> np.uint64(11)) * 2.0**-53
    kind = (draw(0) * 10).astype(np.int64)
    angle, phase = math.pi * kind / 10, 2 * math.pi * draw(1)
    x = np.zeros((len(index), 256))
    for i in range(256):
        along = i // 16 * np.cos(angle) + i % 16 * np.sin(angle)
        x[:, i] = np.sin(1.1 * along + phase) + 4 * (draw(2 * i + 2) + draw(2 * i + 3) - 1)
    return torch.tensor(x.astype(np.float32)).reshape(-1, 1, 16, 16), torch.tensor(kind)


def mlp_loss(p, index, first):
    x, y = gratings(index)
    x = x.reshape(-1, 256)
    x = drop(gelu(F.linear(x, p["in.weight"], p["in.bias"])), 1, first, 0, 0.1)
    x = drop(gelu(F.linear(x, p["mid.weight"], p["mid.bias"])), 1, first, 1, 0.1)
    return F.cross_entropy(F.linear(x, p["head.weight"], p["head.bias"]), y)


def cnn_loss(p, index, first):
    x, y = gratings(index)
    x = F.conv2d(x, p["conv1.weight"], p["conv1.bias"], padding=2).relu()
    x = F.conv2d(F.max_pool2d(x, 2), p["conv2.weight"], p["conv2.bias"], padding=1).relu()
    x = F.max_pool2d(x, 2).reshape(-1, 256)
    return F.cross_entropy(F.linear(x, p["head.weight"], p["head.bias"]), y)


def metrics_loss(p, index, first):
    turn = (np.array(index)[:, None] + 1.0) * [0.5698402909980532, 0.7548776662466927]
    point = (2 * (turn - np.floor(turn)) - 1).astype(np.float32)
    kind = (np.hypot(point[:, 0], point[:, 1]) * np.float32(2.5)).astype(np.int64) % 3
    x = gelu(F.linear(torch.tensor(point), p["in.weight"], p["in.bias"]))
    return F.cross_entropy(F.linear(x, p["out.weight"], p["out.bias"]), torch.tensor(kind))


def byo_loss(p, index, first):
    h = (np.array(index, dtype=np.uint64) * np.uint64(2654435761) + np.uint64(12345)) & U32
    x = np.zeros((len(index), 2), dtype=np.float32)
    for i in range(2):
        h = ((h ^ h >> np.uint64(15)) * np.uint64(2246822519) + np.uint64(1)) & U32
        x[:, i] = (h >> np.uint64(8)).astype(np.float32) / np.float32(8388608) - 1
    want = torch.tensor(np.sin(np.float32(3) * x[:, 0]) * x[:, 1])[:, None]
    h = F.linear(torch.tensor(x), p["first.weight"], p["first.bias"]).relu()
    return ((F.linear(h, p["last.weight"], p["last.bias"]) - want) ** 2).mean()


def minimal_loss(p, index, first):
    rows = torch.stack([TEXT[i * 64:i * 64 + 65] for i in index])
    x = F.embedding(rows[:, :-1], p["embedding"])
    x = x + F.linear(gelu(F.linear(x, p["up.weight"])), p["down.weight"])
    return F.cross_entropy(F.linear(x, p["embedding"]).flatten(0, 1), rows[:, 1:].flatten())


def streaming_loss(p, index, first):
    rows = torch.stack([TEXT[i * 33:i * 33 + 33] for i in index])
    x = F.embedding(rows[:, :-1], p["embedding"])
    x = x + F.linear(gelu(F.linear(x, p["up.weight"])), p["down.weight"])
    return F.cross_entropy(F.linear(x, p["embedding"]).flatten(0, 1), rows[:, 1:].flatten())


def custom_loop_loss(p, index, first):
    turn = (np.array(index) + 1) * 0.6180339887498949
    x = torch.tensor(turn - np.floor(turn))[:, None]
    bumps = torch.exp(-((x - torch.arange(12) / 11.0) * 12) ** 2 / 2)
    return (((bumps * p["curve.w"]).sum(1) - torch.sin(6 * x[:, 0])) ** 2).mean()


TEXT = None  # the bytes of FILE
ZERO = ("zero", 0)
# loss, seed, samples, batch of a rank, rate, warm-up, clip, parameters; and where it is not
# the job that draws samples: the batch of all ranks, and the seed of the order (None: as they
# come)
EXAMPLES = {
    "minimal": (minimal_loss, 0, None, 16, 3e-3, 0, 1.0, {
        "embedding": ([256, 64], "normal", 0.02), "up.weight": ([256, 64], "normal", 0.02),
        "down.weight": ([64, 256], "normal", 0.02)}),
    "mlp": (mlp_loss, 1, 8192, 64, 2e-3, 20, 0, {
        "in.weight": ([192, 256], "uniform", 0.07), "in.bias": ([192], *ZERO),
        "mid.weight": ([192, 192], "uniform", 0.07), "mid.bias": ([192], *ZERO),
        "head.weight": ([10, 192], "uniform", 0.07), "head.bias": ([10], *ZERO)}),
    "cnn": (cnn_loss, 1, 8192, 32, 5e-3, 20, 0, {
        "conv1.weight": ([8, 1, 5, 5], "uniform", 0.2), "conv1.bias": ([8], *ZERO),
        "conv2.weight": ([16, 8, 3, 3], "uniform", 0.118), "conv2.bias": ([16], *ZERO),
        "head.weight": ([10, 256], "uniform", 0.0625), "head.bias": ([10], *ZERO)}),
    "metrics": (metrics_loss, 0, 1960, 0, 1e-2, 0, 0, {
        "in.weight": ([64, 2], "uniform", 0.7), "in.bias": ([64], "uniform", 0.7),
        "out.weight": ([3, 64], "uniform", 0.7), "out.bias": ([3], *ZERO)}, 32, 1),
    "streaming": (streaming_loss, 0, None, 0, 3e-3, 0, 0, {
        "embedding": ([256, 64], "normal", 0.02), "up.weight": ([256, 64], "normal", 0.02),
        "down.weight": ([64, 256], "normal", 0.02)}, 16, None),
    "custom_loop": (custom_loop_loss, 0, None, 0, 0.3, 0, 0, {
        "curve.w": ([12], *ZERO)}, 32, None),
    "byo": (byo_loss, 1, 4096, 16, 1e-2, 0, 0, {
        "first.weight": ([48, 2], "uniform", 0.5), "first.bias": ([48], *ZERO),
        "last.weight": ([1, 48], "uniform", 0.5), "last.bias": ([1], *ZERO)}),
}


def rate(step, total, warmup, peak):
    if step <= warmup:
        return peak * step / warmup
    part = (step - warmup) / (total - warmup)
    return peak * (0.1 + 0.45 * (1 + math.cos(math.pi * part)))


def train(name, ranks, steps, total, hashes):
    loss_of, seed, samples, batch, peak, warmup, clip, shapes, *own = EXAMPLES[name]
    samples = samples or (len(TEXT) - 1) // 64
    whole, draws = own or (batch * ranks, seed)
    p = {key: (torch.zeros(shape) if kind == "zero" else
               initial(seed, hashes[key], shape, kind, scale)).requires_grad_()
         for key, (shape, kind, scale) in shapes.items()}
    optimizer = torch.optim.SGD(p.values(), peak) if name == "custom_loop" else \
        torch.optim.AdamW(p.values(), peak, (0.9, 0.95), 1e-8, 0)
    for step in range(steps):
        first = step * whole
        index = [first + i if draws is None else order(draws, samples, first + i)
                 for i in range(whole)]
        for group in optimizer.param_groups:
            group["lr"] = rate(step + 1, total, warmup, peak)
        loss = loss_of(p, index, first)
        optimizer.zero_grad()
        loss.backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(p.values(), clip)
        optimizer.step()
        print(step + 1, "%.9g" % loss.item())


def main():
    global TEXT
    if len(sys.argv) > 6:
        TEXT = torch.tensor(list(open(sys.argv[6], "rb").read()))
    train(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]),
          {k: int(v) for k, v in (line.split() for line in open(sys.argv[5]))})


np.seterr(over="ignore")
torch.set_num_threads(1)
if __name__ == "__main__":
    main()
