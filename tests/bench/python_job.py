#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What accel_slurm costs a Python program: make bench-python.

    python_job.py LIBRARIES     the folder of libacceljob.so

Prints medians beside their limits, on two ranks of this machine over gloo:
- the import of accel_slurm;
- a call of should_stop, when a step of 2 ms leaves the processor alone, as a device's
  does, when it does not, and when nothing lies between two calls;
- a step of 100 ms of the Trainer without accel and with it, in turns.
"""

import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.join(os.path.dirname(os.path.dirname(HERE)), "python")
RANKS = 2
STEP_S = 2e-3


def environment(**more):
    values = {k: v for k, v in os.environ.items() if not k.startswith(("ACCEL_", "SLURM_"))}
    values["PYTHONPATH"] = PACKAGE
    return {**values, **more}


def ranks(part):
    """Runs this file's `part` on all ranks. Returns what rank 0 prints, as numbers."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = str(held.getsockname()[1])
    with tempfile.TemporaryDirectory() as folder:
        processes = [
            subprocess.Popen(
                [sys.executable, os.path.abspath(__file__), "--rank", part],
                stdout=subprocess.PIPE,
                text=True,
                cwd=folder,
                env=environment(
                    RANK=str(rank),
                    LOCAL_RANK=str(rank),
                    WORLD_SIZE=str(RANKS),
                    MASTER_ADDR="127.0.0.1",
                    MASTER_PORT=port,
                    OMP_NUM_THREADS="1",
                ),
            )
            for rank in range(RANKS)
        ]
        outputs = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        sys.exit(f"python_job.py: a rank of '{part}' failed")
    return [float(word) for word in outputs[0].split()]


# ---- on each rank ----


def compute():
    ends = time.perf_counter() + STEP_S
    while time.perf_counter() < ends:
        pass


def calls(step):
    """Microseconds of a call of should_stop, with step() between two of them."""
    import torch.distributed as dist

    import accel_slurm

    dist.init_process_group("gloo")
    job = accel_slurm.job("job")
    times = []
    for _ in range(3000):
        step()
        begin = time.perf_counter()
        job.should_stop()
        times.append((time.perf_counter() - begin) * 1e6)
    job.finish()
    dist.destroy_process_group()
    print(statistics.median(times[100:]))


def trainer():
    """Milliseconds of a step of 100 ms: without accel, with it, in turns of 30 steps."""
    import torch
    from transformers import Trainer, TrainerCallback, TrainingArguments

    import accel_slurm

    class Steps(TrainerCallback):
        def __init__(self):
            self.begun = []

        def on_step_begin(self, *_, **__):
            self.begun.append(time.perf_counter())

    class Slow(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(8, 8)

        def forward(self, x):
            time.sleep(0.1)  # of a device, which leaves the processor alone
            return {"loss": self.layer(x).square().mean()}

    rows = [{"x": torch.ones(8)}] * 64
    medians = {False: [], True: []}
    for turn in range(6):
        args = TrainingArguments(
            f"turn-{turn}", max_steps=30, use_cpu=True, report_to="none", save_strategy="no",
            disable_tqdm=True, logging_strategy="no", ddp_find_unused_parameters=False,
        )  # fmt: skip
        steps = Steps()
        one = Trainer(Slow(), args, train_dataset=rows, callbacks=[steps])
        if turn % 2:
            accel_slurm.trainer(one)
        sys.stdout, stdout = sys.stderr, sys.stdout
        one.train()
        sys.stdout = stdout
        gaps = [b - a for a, b in zip(steps.begun[3:], steps.begun[4:])]
        medians[bool(turn % 2)].append(statistics.median(gaps) * 1e3)
    torch.distributed.destroy_process_group()
    print(statistics.median(medians[False]), statistics.median(medians[True]))


# ---- the table ----


def imports():
    """Milliseconds that the import adds to a start of Python."""

    def start(code):
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], env=environment(), check=True)
        return (time.perf_counter() - begin) * 1e3

    pairs = [(start("pass"), start("import accel_slurm")) for _ in range(21)]
    return statistics.median(b - a for a, b in pairs)


def main():
    parts = {
        "device": lambda: calls(lambda: time.sleep(STEP_S)),
        "compute": lambda: calls(compute),
        "at-once": lambda: calls(lambda: None),
        "trainer": trainer,
    }
    if sys.argv[1:2] == ["--rank"]:
        parts[sys.argv[2]]()
        return
    if len(sys.argv) > 1:
        os.environ["LD_LIBRARY_PATH"] = sys.argv[1]
    print(f"import accel_slurm             {imports():8.1f} ms    (at most 30)")
    for part, name in (
        ("device", "should_stop, steps on a device"),
        ("compute", "should_stop, steps on the CPU"),
        ("at-once", "should_stop, without steps"),
    ):
        limit = "(at most 100)" if part == "device" else ""
        print(f"{name:31}{ranks(part)[0]:8.1f} us    {limit}".rstrip())
    without, with_accel = ranks("trainer")
    share = (with_accel / without - 1) * 100
    print(f"Trainer, a step without accel  {without:8.2f} ms")
    print(f"Trainer, a step with it        {with_accel:8.2f} ms    ({share:+.2f} %, at most 1)")


if __name__ == "__main__":
    main()
