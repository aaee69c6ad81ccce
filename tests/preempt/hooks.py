# SPDX-License-Identifier: Apache-2.0
"""Runs a program that trains, unchanged, with what make check-python watches it by.

    hooks.py PROGRAM [ARGUMENT]...

Adds to the program:
- the samples of each step of a Trainer, on stdout, a line a step as the loops of examples/
  print it themselves;
- CHECK_MOMENT, `step`, `evaluation`, `save` or `kill`, and CHECK_STEP: rank 0 creates the
  file CHECK_REACHED when this moment has come, the first one at CHECK_STEP or after it. In
  an evaluation and in a save it waits there, with half of a checkpoint written, until
  CHECK_NOTICED exists: the job has its notice by then. For `kill` it waits until it dies.
- No run ends before CHECK_NOTICED exists: rank 0 waits for it in step CHECK_LAST.

A second attempt finds CHECK_NOTICED and waits for nothing.

DistributedDataParallel keeps its first layout of buckets. It would change it after the first
step of each attempt, and so the order in which the gradients of four ranks are added up:
that step of a resumed run would differ in the last bits, with accel or without.
"""

import os
import runpy
import sys
import time

import torch
import torch.distributed.checkpoint as dcp
from torch.optim.optimizer import register_optimizer_step_pre_hook

MOMENT = os.environ["CHECK_MOMENT"]
STEP, LAST = int(os.environ["CHECK_STEP"]), int(os.environ["CHECK_LAST"])
REACHED, NOTICED = os.environ["CHECK_REACHED"], os.environ["CHECK_NOTICED"]
FIRST = os.environ["RANK"] == "0"
steps = 0  # of this attempt


def noticed():
    return os.path.exists(NOTICED)


def wait(killed=False):
    while killed or not noticed():
        time.sleep(0.01)


def reached(moment):
    """Whether rank 0 is to stay in this moment; tells that it is there."""
    wanted = MOMENT if MOMENT != "kill" else "save"
    if not FIRST or moment != wanted or steps < STEP or noticed():
        return False
    with open(REACHED, "a", encoding="utf-8") as file:
        print(moment, "in step", steps, file=file)
    return True


def before_step(*_):
    global steps
    steps += 1
    reached("step")
    if steps == LAST and FIRST:
        wait()


def during(moment, function):
    """The function, in whose end rank 0 stays where the moment has come."""

    def hooked(*arguments, **named):
        result = function(*arguments, **named)
        if reached(moment):
            wait(MOMENT == "kill")
        return result

    return hooked


def watch_trainer():
    from transformers import Trainer

    Trainer.prediction_step = during("evaluation", Trainer.prediction_step)
    original = Trainer.training_step

    def training_step(self, model, inputs, *arguments, **named):
        samples = [a * 64 + b for a, b in inputs["input_ids"][:, :2].tolist()]
        loss = original(self, model, inputs, *arguments, **named)
        rank, step = self.args.process_index, self.state.global_step + 1
        print(f"rank {rank} step {step} samples {samples} loss {loss.item():.6f}", flush=True)
        return loss

    Trainer.training_step = training_step


def keep_buckets():
    initialise = torch.nn.parallel.DistributedDataParallel.__init__

    def __init__(self, *arguments, **named):
        named["find_unused_parameters"] = True
        initialise(self, *arguments, **named)

    torch.nn.parallel.DistributedDataParallel.__init__ = __init__


def main():
    keep_buckets()
    register_optimizer_step_pre_hook(before_step)
    # The first file of a checkpoint is written then, the others are not; of FSDP's the shards
    # are, and what belongs to which one is not.
    torch.save = during("save", torch.save)
    prepare = dcp.FileSystemWriter.finish

    def finish(self, *arguments, **named):
        if reached("save"):
            wait(MOMENT == "kill")
        return prepare(self, *arguments, **named)

    dcp.FileSystemWriter.finish = finish
    if os.environ.get("CHECK_TRAINER"):
        watch_trainer()
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
