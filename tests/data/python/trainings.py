# SPDX-License-Identifier: Apache-2.0
"""Trainings as scripts have them: trainings.py folds | adapters [FOLD:STEP].

folds: three, one after another, with one output_dir. adapters: one whose own
_save_checkpoint writes something else. FOLD:STEP: there the program gets SIGTERM.
Prints the sum of each training's weights.
"""

import os
import signal
import sys

import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

case, tell = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""


class Samples(torch.utils.data.Dataset):
    def __init__(self, fold):
        self.fold = fold

    def __len__(self):
        return 64

    def __getitem__(self, at):
        ids = torch.tensor([(at * self.fold + k) % 32 for k in range(8)])
        return {"input_ids": ids, "labels": ids}


class Tell(TrainerCallback):
    def __init__(self, fold):
        self.fold = fold

    def on_step_end(self, args, state, control, **_):
        if tell == "%d:%d" % (self.fold, state.global_step):
            signal.raise_signal(signal.SIGTERM)


class Adapters(Trainer):
    def _save_checkpoint(self, model, trial=None):
        path = os.path.join(self.args.output_dir, "adapter")
        os.makedirs(path, exist_ok=True)
        torch.save(model.state_dict(), os.path.join(path, "weights.pt"))


for fold in (1, 2, 3) if case == "folds" else (1,):
    set_seed(fold)
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=32,
            n_layer=1,
            n_head=1,
            n_embd=8,
            n_positions=8,
            bos_token_id=0,
            eos_token_id=0,
        )
    )
    (Trainer if case == "folds" else Adapters)(
        model,
        TrainingArguments(
            case,
            max_steps=6,
            save_steps=3,
            per_device_train_batch_size=4,
            use_cpu=True,
            report_to=[],
            disable_tqdm=True,
            learning_rate=1e-2,
            save_only_model=case != "folds",
        ),
        train_dataset=Samples(fold),
        callbacks=[Tell(fold)],
    ).train()
    print("weights", fold, sum(p.double().abs().sum().item() for p in model.parameters()))
