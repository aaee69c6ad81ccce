# SPDX-License-Identifier: Apache-2.0
#
# What Accelerate gives two processes: rows for tests/helpers/ranks_rows.c (calls) and
# tests/unit/test_ranks_metrics.c (loaders, as in metrics_p2.txt). One rank of two:
#     accelerate_rows.py DIRECTORY      rank 0 writes calls.txt and loaders.txt there
import sys

import torch
from accelerate import Accelerator
from accelerate.state import PartialState
from accelerate.utils import DataLoaderConfiguration, broadcast, gather_object
from accelerate.utils import pad_across_processes, reduce
from torch.utils.data import DataLoader, IterableDataset

TYPES = {"float32": torch.float32, "float64": torch.float64, "int32": torch.int32,
         "int64": torch.int64, "uint8": torch.uint8, "bfloat16": torch.bfloat16}


def text(t):
    """SHAPE | VALUES of a tensor."""
    shape = ",".join(str(s) for s in t.shape) or "-"
    values = ",".join(repr(v) for v in t.double().reshape(-1).tolist()) or "-"
    return shape + " | " + values


def sample(seed, shape, dtype):
    """The same on all machines; small, so that every dtype holds it and its sums."""
    draw = torch.Generator().manual_seed(seed)
    values = torch.randint(0, 50, tuple(shape), generator=draw)
    if dtype.is_floating_point:
        values = values.double() / 4
    return values.to(dtype)


def row(lines, name, dtype, args, mine, theirs):
    """All ranks know the row of all ranks."""
    parts = gather_object([text(mine), text(theirs)])
    lines.append(" | ".join(["%s %s %s" % (name, dtype, args)] + parts))


def calls(acc):
    lines, rank, seed = [], acc.process_index, 0
    for name, dtype in TYPES.items():
        for shape in ([], [1], [3], [2, 3], [2, 1, 4], [0, 2]):
            seed += 1
            mine = sample(seed * 2 + rank, shape, dtype)
            row(lines, "gather", name, "0 0 0", mine, acc.gather(mine))
            for how, word in enumerate(("sum", "mean")):
                if how == 0 or dtype.is_floating_point:
                    row(lines, "reduce", name, "%d 0 0" % how, mine, reduce(mine, word))
            for source in range(2):
                got = broadcast(mine.clone(), from_process=source)
                row(lines, "broadcast", name, "%d 0 0" % source, mine, got)
        for dim in range(3):
            for front in range(2):
                seed += 1
                shape = [2, 2, 2]
                shape[dim] = 1 + 2 * rank if front else 3 - rank
                mine = sample(seed, shape, dtype)
                got = pad_across_processes(mine, dim=dim, pad_index=7,
                                           pad_first=bool(front))
                row(lines, "pad", name, "%d 7 %d" % (dim, front), mine, got)
    return lines


def splits():
    """Every world: the state is told who it is."""
    lines, state = [], PartialState()
    was = state.num_processes, state.process_index
    for world in range(1, 6):
        for n in range(0, 13):
            for pad in range(2):
                if n == 0 and pad or world == 1 and pad:
                    continue
                parts = []
                for rank in range(world):
                    state.num_processes, state.process_index = world, rank
                    with state.split_between_processes(list(range(n)), bool(pad)) as got:
                        parts.append(",".join(map(str, got)) or "-")
                lines.append(" | ".join(["split - %d %d %d" % (n, world, pad)] + parts))
    state.num_processes, state.process_index = was
    return lines


class Stream(IterableDataset):
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return iter(range(self.n))


def loader(acc, mode, split, n, batch):
    data = Stream(n) if mode == "iterable" else list(range(n))
    config = acc.dataloader_config
    config.split_batches, config.dispatch_batches = split, mode != "shard"
    ready = acc.prepare_data_loader(DataLoader(data, batch_size=batch))
    mine, rest, end, metrics = [], [], [], []
    for x in ready:
        mine.append(",".join(map(str, x.tolist())) or "-")
        rest.append(str(acc.gradient_state.remainder))
        end.append(str(int(acc.gradient_state.end_of_dataloader)))
        metrics.append(",".join(map(str, acc.gather_for_metrics(x).tolist())))
    fields = gather_object([";".join(mine)])
    fields += [";".join(rest), ";".join(end), ";".join(metrics)]
    return " | ".join(["%s %d %d %d" % (mode, split, n, batch)] + fields)


def loaders(acc):
    lines = []
    for mode in ("shard", "dispatch", "iterable"):
        for split in (False, True):
            for n in (1, 2, 3, 4, 6, 7, 9, 11, 12, 17):
                for batch in (2, 4, 6) if split else (1, 2, 3, 5):
                    lines.append(loader(acc, mode, split, n, batch))
    return lines


def main():
    acc = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration())
    files = {"calls.txt": calls(acc), "loaders.txt": loaders(acc)}
    files["calls.txt"] += splits()
    if acc.is_main_process:
        for name, lines in files.items():
            with open(sys.argv[1] + "/" + name, "w") as f:
                f.write("\n".join(lines) + "\n")
    acc.wait_for_everyone()
    acc.end_training()


main()
