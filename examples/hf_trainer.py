#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small GPT-2 with the Trainer of transformers, on the CPU or on GPUs.

    srun --accel-config=accel.yaml -n 2 hf_trainer.py --output_dir run --max_steps 200

The configuration has `accel: {python: {trainer: true}}`; nothing in this file knows of
accel. A preempted job saves run/checkpoint-N, comes back, and goes on with the same
samples, dropout and learning rates as if nothing had happened. Needs no network: the
model begins with random weights, and the text is made here. All options are those of
transformers.TrainingArguments.
"""

import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
    set_seed,
)


class Sums(torch.utils.data.Dataset):
    """Number i: 16 tokens, each the sum of the two before it, modulo 64."""

    def __init__(self, first, count):
        self.first, self.count = first, count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        a, b = divmod((self.first + i) * 37 % 4096, 64)
        tokens = [a, b]
        while len(tokens) < 16:
            tokens.append((tokens[-1] + tokens[-2]) % 64)
        tokens = torch.tensor(tokens)
        return {"input_ids": tokens, "labels": tokens}


def main():
    (args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
    set_seed(args.seed)
    shape = {"n_layer": 2, "n_head": 2, "n_embd": 32, "n_positions": 16}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=64, bos_token_id=0, eos_token_id=0, **shape))
    trainer = Trainer(model, args, train_dataset=Sums(0, 2048), eval_dataset=Sums(2048, 256))
    trainer.train()
    trainer.save_model()
    print("loss", trainer.evaluate()["eval_loss"])
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
