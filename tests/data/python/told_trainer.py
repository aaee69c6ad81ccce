#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a script of the Trainer as it is, and sends this process a signal at one moment.

    told_trainer.py SCRIPT [ARGUMENT]...

TELL="RANK EVENT STEP SIGNAL" says when, for instance "1 on_step_end 7 TERM"; without
it nothing is sent. With on_prediction_step the signal comes in the second step of the
first evaluation at or after STEP. The signal goes to the workers of the process as well,
as Slurm sends it to all processes of a step.

LATE: rank 0 is the last to write its first checkpoint, by half a second. Until then there
is something in it that nobody can open, under a name with a 1, as of rank 1.
"""

import os
import runpy
import subprocess
import sys
import time

import torch.multiprocessing
import transformers


class Teller(transformers.TrainerCallback):
    def __init__(self, event, step, name):
        self.step, self.signal, self.seen = step, name, 0
        self.wanted = 2 if event == "on_prediction_step" else 1
        setattr(self, event, self.tell)

    def tell(self, args, state, control, **_):
        if state.global_step < self.step:
            return
        self.seen += 1
        if self.seen == self.wanted:
            workers = [one.pid for one in torch.multiprocessing.active_children()]
            pids = [str(pid) for pid in (*workers, os.getpid())]
            # By another process: workers obey their parent's SIGTERM.
            subprocess.run(["kill", "-s", self.signal, *pids], check=True)


def late_writer(save):
    def _save_checkpoint(self, *arguments, **named):
        late = self.args.process_index == 0 and os.environ.pop("LATE", "")
        half = f"{self.args.output_dir}/checkpoint-{self.state.global_step}/.tmp1"
        if late:
            os.makedirs(os.path.dirname(half), exist_ok=True)
            os.symlink("nowhere", half)
        save(self, *arguments, **named)
        if late:
            time.sleep(0.5)
            os.unlink(half)

    return _save_checkpoint


def main():
    told = os.environ.get("TELL", "").split()
    initialise = transformers.Trainer.__init__

    def __init__(self, *arguments, **named):
        initialise(self, *arguments, **named)
        if told and self.args.process_index == int(told[0]):
            self.add_callback(Teller(told[1], int(told[2]), told[3]))

    transformers.Trainer.__init__ = __init__
    transformers.Trainer._save_checkpoint = late_writer(transformers.Trainer._save_checkpoint)
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")


main()
