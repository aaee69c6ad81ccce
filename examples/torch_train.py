# SPDX-License-Identifier: Apache-2.0
"""Plain torch.distributed: a few steps of data-parallel training on the CPU.

Nothing in it knows of accel or Slurm; it reads RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT
as every torch script does:

    srun -n4 --accel-config=ddp.yaml python torch_train.py
    accel launch --config ddp.yaml -n 4 torch_train.py
    python torch_train.py                                   # one process, the same losses
"""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS, BATCH = 5, 24  # BATCH: samples of all ranks together


def main():
    # Without RANK this is one process, and nothing has to meet.
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    rank = dist.get_rank() if dist.is_initialized() else 0
    size = dist.get_world_size() if dist.is_initialized() else 1

    # The same model and data on every rank, whatever the number of ranks.
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    wrapped = DistributedDataParallel(model) if size > 1 else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.randn(STEPS * BATCH, 8)
    target = data.sum(dim=1, keepdim=True)

    share = BATCH // size
    for step in range(STEPS):
        # This rank's part of the step's samples.
        first = step * BATCH + rank * share
        loss = torch.nn.functional.mse_loss(wrapped(data[first : first + share]),
                                            target[first : first + share])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach() / size
        # Sums up to the ranks' numbers: shows that all of them took part.
        ranks = torch.tensor(float(rank))
        if size > 1:
            dist.all_reduce(mean)
            dist.all_reduce(ranks)
        print(f"rank {rank} of {size} step {step} loss {mean.item():.5f} ranks {ranks.item():.0f}",
              flush=True)
    if size > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
