# SPDX-License-Identifier: Apache-2.0
"""Hugging Face Accelerate: a few steps of training, as its own documentation has it.

Nothing in it knows of accel or Slurm:

    srun -n4 --accel-config=ddp.yaml python hf_train.py
    accel launch --config ddp.yaml -n 4 hf_train.py
    python hf_train.py                                      # one process, the same losses
"""

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

STEPS, BATCH = 5, 24  # BATCH: samples of all ranks together


def main():
    # Reads the environment that accel made: ranks, address, mixed precision.
    accelerator = Accelerator()
    # The same model and data on every rank, whatever the number of ranks.
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.randn(STEPS * BATCH, 8)
    loader = DataLoader(TensorDataset(data, data.sum(dim=1, keepdim=True)),
                        batch_size=BATCH // accelerator.num_processes)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    for step, (x, y) in enumerate(loader):
        loss = torch.nn.functional.mse_loss(model(x), y)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        # `ranks` sums up the ranks' numbers: it shows that all of them took part.
        mean = accelerator.reduce(loss.detach(), reduction="mean").item()
        ranks = accelerator.reduce(torch.tensor(float(accelerator.process_index)), reduction="sum")
        print(f"rank {accelerator.process_index} of {accelerator.num_processes} step {step} "
              f"loss {mean:.5f} ranks {ranks.item():.0f}", flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()
