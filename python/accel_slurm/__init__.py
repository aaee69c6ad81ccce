# SPDX-License-Identifier: Apache-2.0
"""Preemption for programs that train in Python, under Slurm and without it.

    job = accel_slurm.job("checkpoints")
    for step in range(first, last):
        train_step()
        if job.should_stop():
            job.save(step, save)
            break
    job.finish()

All ranks stop at the same step, the state is saved where there is time for it, the job is
requeued, and its next attempt knows that it is one. Nothing but ctypes and os is imported
before the package is used, and torch only where the program has imported it.
"""

from ._lib import Error, LibraryMissing
from .job import Job, job
from .trainer import trainer

__all__ = ["Error", "Job", "LibraryMissing", "job", "trainer"]
