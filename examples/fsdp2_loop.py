# SPDX-License-Identifier: Apache-2.0
"""FSDP2 with a sharded checkpoint (torch.distributed.checkpoint), preempted and resumed.

Every rank writes its own part. A checkpoint is a folder step-N; the file `latest` names the
last whole one, and changes only after all ranks have written theirs:

    srun -n4 --accel-config=fsdp.yaml python fsdp2_loop.py --directory run1
    accel launch --config fsdp.yaml -n 4 fsdp2_loop.py --directory run1
    python fsdp2_loop.py --directory run1                    # one process
"""

import argparse
import hashlib
import os
import shutil
import sys

import accel_slurm
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

BATCH = 8  # samples of one rank in a step


class Latest:
    """The name of the last whole checkpoint, in a file that is replaced at once."""

    def __init__(self, directory):
        self.directory, self.path = directory, os.path.join(directory, "latest")

    def folder(self):
        try:
            with open(self.path, encoding="utf-8") as file:
                return os.path.join(self.directory, file.read().strip())
        except FileNotFoundError:
            return None

    def replace(self, folder):
        """Names `folder`, then removes the one that was named before."""
        former = self.folder()
        with open(self.path + ".new", "w", encoding="utf-8") as file:
            file.write(os.path.basename(folder))
            file.flush()
            os.fsync(file.fileno())
        os.replace(self.path + ".new", self.path)
        if former and former != folder:
            shutil.rmtree(former, ignore_errors=True)


def batch(step, rank):
    """The samples of a step depend on its number and the rank, on nothing else."""
    generator = torch.Generator().manual_seed(step * 1000 + rank)
    points = torch.randn(BATCH, 16, generator=generator)
    return points, points.sum(dim=1, keepdim=True)


def main():
    parser = argparse.ArgumentParser(description="FSDP2 that is preempted and resumed")
    parser.add_argument("--directory", default="fsdp2-checkpoints")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--save-every", type=int, default=100)
    options = parser.parse_args()

    job = accel_slurm.job(options.directory)
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    else:  # by hand: a group of one
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    rank, size = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    mesh = init_device_mesh("cpu", (size,))
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    latest = Latest(options.directory)
    step = 0
    if latest.folder() and job.resume != "none":
        weights, moments = get_state_dict(model, optimizer)
        state = {"model": weights, "optimizer": moments, "step": 0, "ranks": 0}
        dcp.load(state, checkpoint_id=latest.folder())
        if state["ranks"] != size:
            raise SystemExit(f"{latest.folder()} is of {state['ranks']} ranks, this run has {size}")
        set_state_dict(model, optimizer, model_state_dict=state["model"],
                       optim_state_dict=state["optimizer"])  # fmt: skip
        step = state["step"]
        if rank == 0:
            print(f"attempt {job.restart} of {job.run_id}: resumes at step {step}", flush=True)

    def save():
        folder = os.path.join(options.directory, f"step-{step}")
        weights, moments = get_state_dict(model, optimizer)
        dcp.save({"model": weights, "optimizer": moments, "step": step, "ranks": size},
                 checkpoint_id=folder)  # fmt: skip
        dist.barrier()
        if rank == 0:
            latest.replace(folder)

    while step < options.steps:
        points, sums = batch(step, rank)
        loss = torch.nn.functional.mse_loss(model(points), sums)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        # One write per line: those of other ranks go to the same file.
        sys.stdout.write(f"rank {rank} step {step} samples [{points[0, 0]:.6f}] "
                         f"loss {loss.item():.6f}\n")  # fmt: skip
        sys.stdout.flush()
        if job.should_stop():
            job.save(step, save)
            break
        if step % options.save_every == 0:
            job.save(step, save)
    job.finish()  # after a stop the program ends here, and comes back

    whole = [p.full_tensor().detach() for p in model.parameters()]
    if rank == 0:
        weights = b"".join(p.numpy().tobytes() for p in whole)
        print(f"finished: weights {hashlib.sha256(weights).hexdigest()[:16]}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
