#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# Writes DIR/schedules.txt: the rates of transformers.optimization and torch.optim.lr_scheduler
# over whole runs, a line per schedule: name, number of rates, rates of the steps from the
# first on. test_schedule.c has the settings by name. Made with torch 2.15.0, transformers 5.
#     make_schedules.py DIR
import sys
import torch
from torch.optim import lr_scheduler as T
import transformers.optimization as F

LR = 3e-4


def optimizer():
    return torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=LR)


def rates(make, count):
    o = optimizer()
    s = make(o)
    for _ in range(count):
        yield o.param_groups[0]["lr"]
        o.step()
        s.step()


def metric(i):
    """Falls, stays, falls, grows: test_schedule.c makes it again."""
    return 4.0 / (1 + min(i, 12)) + 0.25 * ((i * 7) % 5) + (0.125 * (i - 40) if i > 40 else 0)


def plateau(make, count):
    o = optimizer()
    s = make(o)
    for i in range(count):
        yield o.param_groups[0]["lr"]
        s.step(metric(i))


CASES = {
    "constant": (F.get_constant_schedule, 20),
    "constant-warmup": (lambda o: F.get_constant_schedule_with_warmup(o, 7), 20),
    "linear": (lambda o: F.get_linear_schedule_with_warmup(o, 10, 60), 70),
    "linear-cold": (lambda o: F.get_linear_schedule_with_warmup(o, 0, 60), 70),
    "linear-short": (lambda o: F.get_linear_schedule_with_warmup(o, 20, 10), 10),
    "cosine": (lambda o: F.get_cosine_schedule_with_warmup(o, 10, 60), 61),
    "cosine-waves": (lambda o: F.get_cosine_schedule_with_warmup(o, 10, 60, 1.5), 61),
    "cosine-end": (lambda o: F.get_cosine_with_min_lr_schedule_with_warmup(
        o, 10, 60, min_lr_rate=0.2), 61),
    "restarts": (lambda o: F.get_cosine_with_hard_restarts_schedule_with_warmup(
        o, 10, 60, 3), 70),
    "restarts-one": (lambda o: F.get_cosine_with_hard_restarts_schedule_with_warmup(
        o, 10, 60), 70),
    "polynomial": (lambda o: F.get_polynomial_decay_schedule_with_warmup(o, 10, 60), 70),
    "polynomial-2": (lambda o: F.get_polynomial_decay_schedule_with_warmup(
        o, 5, 60, lr_end=3e-5, power=2.5), 70),
    "inverse-sqrt": (lambda o: F.get_inverse_sqrt_schedule(o, 10), 100),
    "inverse-sqrt-time": (lambda o: F.get_inverse_sqrt_schedule(o, 10, 25), 100),
    "inverse-sqrt-cold": (lambda o: F.get_inverse_sqrt_schedule(o, 0), 100),
    "one-cycle": (lambda o: T.OneCycleLR(o, LR, 60), 60),
    "one-cycle-own": (lambda o: T.OneCycleLR(
        o, LR, 60, pct_start=0.25, div_factor=10, final_div_factor=100), 60),
    "one-cycle-short": (lambda o: T.OneCycleLR(o, LR, 7), 7),
    "one-cycle-3": (lambda o: T.OneCycleLR(o, LR, 3), 3),
    "own": (lambda o: T.LambdaLR(o, lambda p: 0.95 ** p), 40),
}
PLATEAUS = {
    "plateau": (lambda o: T.ReduceLROnPlateau(o), 90),
    "plateau-quick": (lambda o: T.ReduceLROnPlateau(
        o, factor=0.5, patience=2, threshold=0.05, cooldown=3, min_lr=3e-6), 90),
    "plateau-abs": (lambda o: T.ReduceLROnPlateau(
        o, factor=0.7, patience=0, threshold=0.3, threshold_mode="abs"), 40),
    "plateau-max": (lambda o: T.ReduceLROnPlateau(
        o, mode="max", factor=0.5, patience=4, cooldown=1), 90),
    "plateau-max-abs": (lambda o: T.ReduceLROnPlateau(
        o, mode="max", factor=0.5, patience=4, threshold=1.0, threshold_mode="abs"), 90),
}

with open(f"{sys.argv[1]}/schedules.txt", "w", encoding="ascii") as f:
    for cases, run in ((CASES, rates), (PLATEAUS, plateau)):
        for name, (make, count) in cases.items():
            values = list(run(make, count))
            f.write(f"{name} {len(values)} {' '.join(repr(float(v)) for v in values)}\n")
