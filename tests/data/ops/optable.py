# SPDX-License-Identifier: Apache-2.0
"""PyTorch's results of the op table, in float64 on the table's float32 inputs.

In: what `test_optable --dump` prints. Out: optable.golden, some elements of every result and
gradient. Ops whose result PyTorch cannot give (dropout: another generator) are left out.
"""
import sys

import torch
import torch.nn.functional as F

PICKED = 16
ACT = [
    lambda x: x,
    lambda x: F.gelu(x, approximate="tanh"),
    F.gelu,
    F.silu,
    F.relu,
    lambda x: F.relu(x) ** 2,
    torch.tanh,
    torch.sigmoid,
    torch.exp,
    torch.log,
]


def layernorm(s, r, x):
    return F.layer_norm(x[0], x[0].shape[-1:], x[1], x[2] if s[2] else None, r[0])


def rmsnorm(s, r, x):
    return F.rms_norm(x[0], x[0].shape[-1:], x[1], r[0])


def linear(s, r, x):
    return ACT[s[3]](F.linear(x[0], x[1], x[2] if s[4] else None))


def chain(s, r, x):
    h = ACT[s[3]](F.linear(x[0], x[1], x[3] if s[4] else None))
    return F.linear(h, x[2]) * (2 if r[0] else 1)


def embedding(s, r, x):
    y = F.embedding(x[0], x[1])
    return y + x[2][: s[1]] if s[4] else y


def conv2d(s, r, x):
    y = F.conv2d(x[0], x[1], x[2] if r[0] else None, s[7] % 10, s[7] // 10 % 10)
    return ACT[s[7] // 100](y)


def slices(s, r, x):
    d, first = int(r[0]), int(r[1])
    return x[0].narrow(d, first, s[4]) + x[0].narrow(d, 0, s[4])


OPS = {
    "activate": lambda s, r, x: ACT[s[2]](x[0]),
    "gated by itself": lambda s, r, x: ACT[s[2]](x[0]) * x[0],
    "gated": lambda s, r, x: ACT[s[2]](x[0]) * x[1],
    "sigmoid": lambda s, r, x: torch.sigmoid(x[0]),
    "exp": lambda s, r, x: torch.exp(x[0]),
    "log": lambda s, r, x: torch.log(x[0]),
    "scale added": lambda s, r, x: r[1] * x[0] + x[0],
    "scale": lambda s, r, x: r[1] * x[0],
    "binary cross": lambda s, r, x: F.binary_cross_entropy_with_logits(x[0], x[1]),
    "soft cross": lambda s, r, x: F.cross_entropy(x[0], x[1]),
    "mul": lambda s, r, x: x[0] * x[1],
    "add of a tensor and itself": lambda s, r, x: x[0] + x[0],
    "add": lambda s, r, x: x[0] + x[1],
    "layernorm": layernorm,
    "rmsnorm": rmsnorm,
    "softmax": lambda s, r, x: F.softmax(x[0], -1),
    "sum of": lambda s, r, x: x[0].sum(),
    "sum": lambda s, r, x: x[0].sum(s[3]),
    "mean of": lambda s, r, x: x[0].mean(),
    "mean": lambda s, r, x: x[0].mean(s[3]),
    "mse": lambda s, r, x: F.mse_loss(x[0], x[1]),
    "linear": linear,
    "chain": chain,
    "embedding": embedding,
    "conv2d": conv2d,
    "maxpool2d": lambda s, r, x: F.max_pool2d(x[0], s[4], s[5]),
    "slices": slices,
    "slice": lambda s, r, x: x[0].narrow(int(r[0]), int(r[1]), s[4]),
    "transpose to": lambda s, r, x: 2 * x[0],
    "transpose": lambda s, r, x: x[0].transpose(int(r[0]), int(r[1])),
}


def emit(name, t):
    flat = t.detach().reshape(-1).tolist()
    stride = len(flat) // PICKED + 1
    largest = max((abs(v) for v in flat), default=0.0)
    picked = " ".join("%.9g" % v for v in flat[::stride])
    print(name, len(flat), stride, "%.9g" % largest, picked)


def run(case):
    name = next((n for n in OPS if case["op"].startswith(n)), None)
    # PyTorch's mean of nothing is no number; the library's is 0.
    if name is None or any(0 in x.shape for x in case["in"]):
        return
    y = OPS[name](case["s"], case["r"], case["in"])
    y.backward(torch.tensor(case["weight"], dtype=torch.float64).reshape(y.shape))
    print("case", case["case"])
    emit("out", y)
    for i, x in enumerate(case["in"]):
        if x.requires_grad:
            emit("grad%d" % i, x.grad)


def main():
    print("# PyTorch %s, float64; made by optable.py" % torch.__version__)
    case = {}
    for line in sys.stdin:
        key, _, rest = line.rstrip("\n").partition(" ")
        if key == "case":
            case = {"case": rest, "in": []}
        elif key == "op":
            case["op"] = rest
        elif key in ("s", "r", "weight"):
            case[key] = [int(w) if key == "s" else float(w) for w in rest.split()]
        elif key == "in":
            kind, *dims = rest.split()
        elif key == "v":
            values = [float(w) for w in rest.split()]
            t = torch.tensor(values, dtype=torch.float64).reshape([int(d) for d in dims])
            if kind == "ids":
                t = t.long()
            elif kind != "bytes":
                t.requires_grad_()
            case["in"].append(t)
        elif key == "end":
            run(case)


main()
