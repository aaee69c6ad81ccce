# SPDX-License-Identifier: Apache-2.0
"""Hugging Face Accelerate with its save_state and load_state, preempted and resumed.

The lines with `job` are all that preemption needs; the rest is Accelerate as its own
documentation has it:

    srun -n4 --accel-config=ddp.yaml python accelerate_loop.py --directory run1
    accel launch --config ddp.yaml -n 4 accelerate_loop.py --directory run1
    python accelerate_loop.py --directory run1               # one process
"""

import argparse
import glob
import hashlib
import os

import accel_slurm
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset

SAMPLES, BATCH = 1024, 8  # BATCH: samples of one rank in a step


def newest(directory):
    """The number and the folder of the last checkpoint; 0 and None: there is none."""
    found = [(int(path.rsplit("-", 1)[1]), path) for path in glob.glob(directory + "/step-*[0-9]")]
    return max(found, default=(0, None))


def main():
    parser = argparse.ArgumentParser(description="Accelerate that is preempted and resumed")
    parser.add_argument("--directory", default="accelerate-checkpoints")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--save-every", type=int, default=100)
    options = parser.parse_args()

    job = accel_slurm.job(options.directory)
    accelerator = Accelerator()
    set_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Dropout(0.1),
                                torch.nn.Tanh(), torch.nn.Linear(32, 1))  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    points = torch.randn(SAMPLES, 16, generator=torch.Generator().manual_seed(1))
    data = TensorDataset(torch.arange(SAMPLES), points, points.sum(dim=1, keepdim=True))
    model, optimizer, loader = accelerator.prepare(
        model, optimizer, DataLoader(data, batch_size=BATCH, shuffle=True)
    )
    per_epoch = len(loader)

    step, folder = newest(options.directory) if job.resume != "none" else (0, None)
    if folder:
        accelerator.load_state(folder)
        accelerator.print(f"attempt {job.restart} of {job.run_id}: resumes at step {step}")

    def save():
        # Under its name there is a whole checkpoint or none.
        folder = os.path.join(options.directory, f"step-{step}")
        accelerator.save_state(folder + ".new")
        accelerator.wait_for_everyone()
        if accelerator.is_main_process:
            os.replace(folder + ".new", folder)

    stopped = False
    while step < options.steps and not stopped:
        # The order of an epoch depends on its number only, so a resumed run skips what the
        # attempt before it has seen.
        torch.manual_seed(step // per_epoch)
        for numbers, x, y in accelerator.skip_first_batches(loader, step % per_epoch):
            torch.manual_seed(1000 + step * accelerator.num_processes + accelerator.process_index)
            loss = torch.nn.functional.mse_loss(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            print(f"rank {accelerator.process_index} step {step} samples {numbers.tolist()} "
                  f"loss {loss.item():.6f}", flush=True)  # fmt: skip
            stopped = job.should_stop()
            if stopped or step % options.save_every == 0:
                job.save(step, save)
            if stopped or step == options.steps:
                break
    job.finish()  # after a stop the program ends here, and comes back

    if accelerator.is_main_process:
        weights = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
        print(f"finished: weights {hashlib.sha256(weights).hexdigest()[:16]}", flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()
