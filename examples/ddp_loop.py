# SPDX-License-Identifier: Apache-2.0
"""DistributedDataParallel with a loop and a checkpoint of its own, preempted and resumed.

The lines with `job` are all that preemption needs. All ranks stop at the same step, rank 0
writes the checkpoint, and the next attempt goes on with the very next sample:

    srun -n4 --accel-config=ddp.yaml python ddp_loop.py --directory run1
    accel launch --config ddp.yaml -n 4 ddp_loop.py --directory run1
    python ddp_loop.py --directory run1                      # one process
"""

import argparse
import hashlib
import os
import sys

import accel_slurm
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

SAMPLES, BATCH = 1024, 8  # BATCH: samples of one rank in a step


class Points(Dataset):
    """Points and the sum of their coordinates, with each point's number."""

    def __init__(self):
        self.points = torch.randn(SAMPLES, 16, generator=torch.Generator().manual_seed(1))

    def __len__(self):
        return SAMPLES

    def __getitem__(self, number):
        return number, self.points[number], self.points[number].sum(dim=0, keepdim=True)


class Batches:
    """This rank's sample numbers, step by step: what a step gets depends on its number only.

    Every epoch has an order of its own, and a resumed run begins in the middle of one.
    """

    def __init__(self, first, last, rank, size):
        self.steps, self.rank, self.size = range(first, last), rank, size

    def __len__(self):
        return len(self.steps)

    def __iter__(self):
        per_epoch = SAMPLES // (BATCH * self.size)
        order, known = [], -1
        for step in self.steps:
            epoch, place = divmod(step, per_epoch)
            if epoch != known:
                known = epoch
                generator = torch.Generator().manual_seed(epoch)
                order = torch.randperm(SAMPLES, generator=generator).tolist()
            first = (place * self.size + self.rank) * BATCH
            yield order[first : first + BATCH]


def write(path, state):
    """The whole file or none: what is under the name `path` can always be read."""
    with open(path + ".new", "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".new", path)


def main():
    parser = argparse.ArgumentParser(description="DDP that is preempted and resumed")
    parser.add_argument("--directory", default="ddp-checkpoints")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--save-every", type=int, default=100)
    parser.add_argument("--workers", type=int, default=0, help="of the data loader")
    options = parser.parse_args()

    job = accel_slurm.job(options.directory)
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    else:  # by hand: a group of one
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    rank, size = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(0)  # the same first weights on all ranks
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    wrapped = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    path = os.path.join(options.directory, "state.pt")
    step = 0
    if os.path.exists(path) and job.resume != "none":
        state = torch.load(path, weights_only=True)
        if state["ranks"] != size:
            raise SystemExit(f"{path} is of {state['ranks']} ranks, this run has {size}")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
        if rank == 0:
            print(f"attempt {job.restart} of {job.run_id}: resumes at step {step}", flush=True)

    def save():
        # The replicas are equal, so one rank writes; job.save lets the others wait for it.
        if rank == 0:
            write(path, {"step": step, "ranks": size, "model": model.state_dict(),
                         "optimizer": optimizer.state_dict()})  # fmt: skip

    loader = DataLoader(Points(), batch_sampler=Batches(step, options.steps, rank, size),
                        num_workers=options.workers)  # fmt: skip
    for numbers, points, sums in loader:
        loss = torch.nn.functional.mse_loss(wrapped(points), sums)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        # One write per line: those of other ranks go to the same file.
        sys.stdout.write(f"rank {rank} step {step} samples {numbers.tolist()} "
                         f"loss {loss.item():.6f}\n")  # fmt: skip
        sys.stdout.flush()
        if job.should_stop():
            job.save(step, save)
            break
        if step % options.save_every == 0:
            job.save(step, save)
    job.finish()  # after a stop the program ends here, and comes back

    if rank == 0:
        weights = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
        print(f"finished: weights {hashlib.sha256(weights).hexdigest()[:16]}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
