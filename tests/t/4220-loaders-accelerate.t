#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The rule of batches and torch's order beside Accelerate itself: its shards in one process, its
# dispatching loader in two processes.
# shellcheck source=tests/t/tap.sh
. "$(dirname "$0")/tap.sh"
# shellcheck source=tests/t/torch.sh
. "$(dirname "$0")/torch.sh"

tap_tmpdir
ACCEL_TORCH_PYTHON=${ACCEL_TORCH_PYTHON:-${ACCEL_PEERS_PYTHON:-python3}}
rows=$ACCEL_BUILD/tests/helpers/loader_rows
[ -x "$rows" ] || bail_out "tests/helpers/loader_rows is not built"
need_torch "accelerate"

cat >compare.py <<'PY'
import subprocess, sys, torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, SequentialSampler
from accelerate.data_loader import BatchSamplerShard, IterableDatasetShard, SeedableRandomSampler

ours = subprocess.Popen([sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
def ask(*words):
    ours.stdin.write(" ".join(str(int(w) if isinstance(w, bool) else w) for w in words) + "\n")
    ours.stdin.flush()
    lines = []
    while (line := ours.stdout.readline().rstrip("\n")) != ".":
        lines.append(line)
    return lines
def batches(line):
    return [[int(i) for i in b.split()] for b in line.split(" | ")] if line else []

class Stream(IterableDataset):
    def __init__(self, n): self.n = n
    def __iter__(self): return iter(range(self.n))
class Numbers(Dataset):
    def __init__(self, n): self.n = n
    def __len__(self): return self.n
    def __getitem__(self, i): return i

def grid(most, evens):
    for ranks in range(1, 5):
        for batch in range(1, 6):
            for split in (False, True):
                if not split or batch % ranks == 0:
                    for drop in (False, True):
                        for even in evens:
                            for n in range(most):
                                yield n, batch, ranks, split, drop, even

def sharded():
    cases = wrong = 0
    for n, batch, ranks, split, drop, even in grid(41, (True, False)):
        got = ask("batches", 0, n, batch, ranks, split, drop, even)
        for rank in range(ranks):
            base = BatchSampler(SequentialSampler(range(n)), batch, drop)
            shard = BatchSamplerShard(base, ranks, rank, split, even)
            cases += 1
            wrong += batches(got[rank]) != [list(b) for b in shard]
    print("sharded", cases, wrong)

def iterable():
    cases = wrong = 0
    for n, batch, ranks, split, drop, even in grid(30, (True,)):
        got = ask("batches", 0, n, batch, ranks, split, drop, even)
        for rank in range(ranks):
            shard = IterableDatasetShard(Stream(n), batch, drop, ranks, rank, split)
            cases += 1
            wrong += sum(batches(got[rank]), []) != list(shard)
    print("iterable", cases, wrong)

def orders():
    cases = wrong = 0
    for seed in (0, 1, 42, 2**31, 2**32 + 5, 2**40 + 7):
        for n in (1, 2, 10, 625, 5000):
            generator = torch.Generator()
            sampler = SeedableRandomSampler(Numbers(n), generator=generator, data_seed=seed)
            got = ask("torch", seed, 3, n)
            for epoch in range(3):
                cases += 1
                wrong += [int(i) for i in got[epoch].split()] != list(sampler)
    print("orders", cases, wrong)

sharded()
iterable()
orders()
PY
"$python" compare.py "$rows" >said 2>err
ok $? "Accelerate's shards and orders" || diag "$(tail -n 5 err)"
for what in sharded iterable orders; do
    read -r _ cases wrong <<END
$(grep "^$what " said)
END
    [ "${cases:-0}" -gt 80 ] && [ "$wrong" = 0 ]
    ok $? "$what: ${wrong:-?} of ${cases:-?} cases differ"
done

cat >dispatch.py <<'PY'
import json, os, sys, torch
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, Dataset
class Numbers(Dataset):
    def __init__(self, n): self.n = n
    def __len__(self): return self.n
    def __getitem__(self, i): return i
def cases():
    for n in range(1, 14):
        for batch in (1, 2, 3, 4):
            for split in (False, True):
                if not split or batch % 2 == 0:
                    for drop in (False, True):
                        # Accelerate fails where an epoch has no batch at all.
                        step = batch if split else 2 * batch
                        if not drop or n >= step:
                            yield n, batch, split, drop
def rank(r, port):
    os.environ.update(RANK=str(r), LOCAL_RANK=str(r), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1",
                      MASTER_PORT=str(port), ACCELERATE_USE_CPU="true")
    from accelerate import Accelerator
    from accelerate.data_loader import prepare_data_loader
    accelerator = Accelerator(cpu=True)
    out = []
    for n, batch, split, drop in cases():
        loader = prepare_data_loader(DataLoader(Numbers(n), batch_size=batch, drop_last=drop),
            device=torch.device("cpu"), num_processes=2, process_index=r, split_batches=split,
            dispatch_batches=True, put_on_device=True)
        rows, ends, remainder = [], [], None
        for b in loader:
            rows.append(b.tolist())
            ends.append(bool(loader.end_of_dataloader))
            remainder = loader.remainder
        out.append([[n, batch, split, drop], rows, ends, remainder])
    json.dump(out, open(f"rank{r}.json", "w"))
if __name__ == "__main__":
    if sys.argv[1] == "run":
        import socket
        s = socket.socket(); s.bind(("127.0.0.1", 0)); port = s.getsockname()[1]; s.close()
        mp.spawn(rank, args=(port,), nprocs=2)
    else:
        import subprocess
        ranks = [json.load(open(f"rank{r}.json")) for r in range(2)]
        asked = "".join("batches 1 %d %d 2 %d %d 1\n" % tuple(c[0]) for c in ranks[0])
        said = subprocess.run([sys.argv[1]], input=asked, capture_output=True, text=True).stdout
        wrong = 0
        for case, other, lines in zip(*ranks, said.split(".\n")):
            for line, theirs in zip(lines.split("\n"), (case, other)):
                ours = [[int(i) for i in b.split()] for b in line.split(" | ")] if line else []
                wrong += ours != theirs[1] or theirs[2] != [False] * (len(ours) - 1) + [True]
        print(len(ranks[0]), wrong)
PY
if "$python" -c 'import torch.distributed as d; assert d.is_gloo_available()' 2>/dev/null; then
    timeout "$HANG_S" "$python" dispatch.py run >said 2>err
    ok $? "two processes of torch" || diag "$(tail -n 5 err)"
    is "$("$python" dispatch.py "$rows" 2>&1 | cut -d' ' -f2)" 0 \
        "the dispatching loader in two processes: every batch and end"
else
    skip 2 "torch was built without gloo"
fi
done_testing
