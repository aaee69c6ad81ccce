# SPDX-License-Identifier: Apache-2.0
"""Two ranks whose loops have different lengths: uneven.py NAME STEPS,STEPS...

Each pair is a job of its own, in the directory NAME-PAIR. Each rank writes to NAME.RANK how its
loop ended. In its third step it waits for the file `go`, so that a test can send a signal while
all ranks run.
"""

import os
import sys
import time

import accel_slurm
import torch.distributed as dist

name = sys.argv[1]
dist.init_process_group("gloo")
rank = dist.get_rank()
out = open(f"{name}.{rank}", "w", buffering=1)
for number, pair in enumerate(sys.argv[2:]):
    job = accel_slurm.job(f"{name}-{number}")
    steps = int(pair.split(",")[rank])
    saves = []
    step = 0
    while step < steps:
        step += 1
        if step == 3:
            print(os.getpid(), "runs", file=out)
            while not os.path.exists("go"):
                time.sleep(0.01)
        if job.should_stop():
            job.save(step, lambda: saves.append(step))
            break
    print(pair, "leaves after", step, "saves", saves, file=out)
    job.finish()
    print(pair, "finished", file=out)
dist.destroy_process_group()
