#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads a checkpoint of accel with h5py alone: no accel, no MANIFEST, no index.h5.

    read_checkpoint.py out/checkpoints/step_00001200            lists all tensors
    read_checkpoint.py out/checkpoints/step_00001200 NAME       prints one

See doc/checkpoint-format.md. Hashes are not checked here: `accel ckpt verify` does that.
Empty tensors are in no file.
"""
import glob
import sys

import h5py
import numpy as np


def read_checkpoint(directory):
    """{name: array} of all tensors, put together from the files of all ranks."""
    tensors = {}

    def take(name, dataset):
        if not isinstance(dataset, h5py.Dataset) or name.startswith("state/"):
            return
        part = dataset[()]  # bfloat16 comes as float32
        shape = tuple(dataset.attrs.get("global_shape", dataset.shape))
        offset = dataset.attrs.get("offset", (0,) * len(shape))
        whole = tensors.setdefault(name.split("@")[0], np.zeros(shape, dataset.dtype))
        whole[tuple(slice(o, o + n) for o, n in zip(offset, dataset.shape))] = part

    for path in sorted(glob.glob(f"{glob.escape(directory)}/rank_*-of-*.h5")):
        with h5py.File(path, "r") as file:
            file.visititems(take)
    return tensors


if __name__ == "__main__":
    found = read_checkpoint(sys.argv[1])
    for key in sys.argv[2:] or sorted(found):
        print(found[key] if sys.argv[2:] else f"{key} {found[key].dtype} {found[key].shape}")
