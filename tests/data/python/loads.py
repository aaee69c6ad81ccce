# SPDX-License-Identifier: Apache-2.0
"""A loop over a DataLoader with two workers: loads.py METHOD PERSISTENT.

It goes on until it is told to stop, takes ten more batches, which the workers must still load,
and saves. Its standard output says how it went.
"""

import os
import sys

import accel_slurm
from torch.utils.data import DataLoader, Dataset


class Squares(Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, number):
        return number * number


def own_init(worker):
    open(f"worker.{worker}", "a").write(f"{os.getpid()}\n")


def main():
    job = accel_slurm.job("checkpoints")
    loader = DataLoader(Squares(), num_workers=2, batch_size=2, worker_init_fn=own_init,
                        multiprocessing_context=sys.argv[1],
                        persistent_workers=sys.argv[2] == "persistent")  # fmt: skip
    batches, more = 0, 10
    while more:
        for batch in loader:
            batches += 1
            if batches == 3:
                print(os.getpid(), "runs", flush=True)
            more -= job.should_stop()
            if not more:
                break
    print("batch", batch.tolist()[0] >= 0, "init", loader.worker_init_fn is own_init, flush=True)
    print("saved", job.save(batches, lambda: None), flush=True)
    job.finish()


if __name__ == "__main__":
    main()
