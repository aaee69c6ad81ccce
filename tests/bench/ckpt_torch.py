# SPDX-License-Identifier: Apache-2.0
"""The peers of bench_ckpt: torch's distributed checkpoints (DCP) and safetensors.

Works on request (tests/bench/step/peer.h): says "ready ABOUT", takes lines
    tensor NAME ROWS COLS     one more float32 tensor; no answer
    save KIND DIR             durable: files and the directory are synced
    load KIND DIR             into tensors that are there
    cold DIR                  drops DIR from the page cache; warm DIR reads it
and answers each but the first with its seconds. KIND: dcp or safetensors.
"""

import os
import sys
import time
import warnings

warnings.filterwarnings("ignore")
import torch
import torch.distributed.checkpoint as dcp

try:
    from safetensors.torch import load_file, save_file
except ImportError:
    save_file = None

state = {}


def sync(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def files(directory):
    return [os.path.join(p, f) for p, _, fs in os.walk(directory) for f in fs]


def save(kind, directory):
    if kind == "dcp":
        dcp.save(state, checkpoint_id=directory, no_dist=True)
    else:
        os.makedirs(directory)
        save_file(state, directory + "/a.safetensors")
        sync(directory + "/a.safetensors")
    sync(directory)
    sync(os.path.dirname(directory))


def load(kind, directory):
    if kind == "dcp":
        dcp.load(state, checkpoint_id=directory, no_dist=True)
    else:
        for name, value in load_file(directory + "/a.safetensors").items():
            state[name].copy_(value)


def touch(directory, cold):
    for path in files(directory):
        fd = os.open(path, os.O_RDONLY)
        if cold:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        while not cold and os.read(fd, 1 << 20):
            pass
        os.close(fd)


def main():
    peers = "dcp" + (" safetensors" if save_file else "")
    print(f"ready {peers} torch {torch.__version__}", flush=True)
    for line in sys.stdin:
        what, *words = line.split()
        if what == "tensor":
            state[words[0]] = torch.rand(int(words[1]), int(words[2]))
            continue
        begun = time.monotonic()
        if what == "save":
            save(*words)
        elif what == "load":
            load(*words)
        else:
            touch(*words, what == "cold")
        print(what, time.monotonic() - begun, flush=True)


main()
