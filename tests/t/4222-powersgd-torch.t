#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# PowerSGD on two ranks beside torch's powerSGD_hook and batched_powerSGD_hook over gloo: the
# same gradients and first factors give the same steps.
# shellcheck source=tests/t/tap.sh
. "$(dirname "$0")/tap.sh"

python=${ACCEL_PEERS_PYTHON:-python3}
"$python" -c 'import numpy, torch.distributed' 2>/dev/null ||
    skip_all "no torch in $python (set ACCEL_PEERS_PYTHON)"
tap_tmpdir
cd "$tap_tmp" || bail_out "no directory"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS

cat >peers.py <<'PY'
import sys

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as hooks

VECTOR, ROWS, COLS, STEPS, RANK = 4, 12, 9, 5, 2


def value(stream, i):
    x = (stream * 1000003 + i * 7919 + 12345) & 0xFFFFFFFF
    for _ in range(3):
        x = (x * 1664525 + 1013904223) & 0xFFFFFFFF
    return (x >> 8) / 8388608.0 - 1.0


# The batched hook of torch 2.15 hands a matrix to a function that wants a stack of them.
of_stacks = hooks._orthogonalize
hooks._orthogonalize = lambda m, epsilon=0: of_stacks(m[None] if m.dim() == 2 else m, epsilon)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(ROWS, COLS))
        self.b = torch.nn.Parameter(torch.zeros(VECTOR))

    def forward(self, g, h):
        return (self.w * g).sum() + (self.b * h).sum()


def run(hook, side, me, out):
    net = torch.nn.parallel.DistributedDataParallel(Net())
    state = hooks.PowerSGDState(None, RANK, start_powerSGD_iter=2)
    net.register_comm_hook(state, hook)
    for step in range(-2, STEPS):
        if step == 0:
            rows, cols = (side, side) if side else (ROWS, COLS)
            p = torch.zeros(rows * RANK)
            q = torch.tensor([value(7, i) for i in range(cols * RANK)])
            state.p_memory_dict[0] = p.reshape(side, RANK) if side else p
            state.q_memory_dict[0] = q.reshape(side, RANK) if side else q
        net.zero_grad()
        g = torch.tensor([value(200 + step + 100 * me, i) for i in range(ROWS * COLS + VECTOR)])
        net(g[VECTOR:].reshape(ROWS, COLS), g[:VECTOR]).backward()
        if step >= 0 and me == 0:
            both = torch.cat([net.module.b.grad, net.module.w.grad.flatten()])
            out.write(" ".join(f"{x:.9g}" for x in both.tolist()) + "\n")


def rank_main(me):
    dist.init_process_group("gloo", rank=me, world_size=2, init_method=f"file://{sys.argv[1]}/meet")
    for name, hook, side in (("layers", hooks.powerSGD_hook, 0),
                             ("batched", hooks.batched_powerSGD_hook, 11)):
        with open(f"{name}.theirs" if me == 0 else "/dev/null", "w", encoding="ascii") as out:
            run(hook, side, me, out)
    dist.destroy_process_group()


if __name__ == "__main__":
    import multiprocessing
    other = multiprocessing.get_context("fork").Process(target=rank_main, args=(1,))
    other.start()
    rank_main(0)
    other.join()
    sys.exit(other.exitcode)
PY
"$python" -W ignore peers.py "$tap_tmp" >said 2>&1
ok $? "torch runs on two ranks" || diag "$(tail -n 5 said)"

for how in layers batched; do
    "$ACCEL_BUILD/tests/helpers/powersgd_peer" $how >$how.ours 2>said
    ok $? "$how: two ranks" || diag "$(tail -n 5 said)"
    paste -d ' ' $how.ours $how.theirs | awk '
        NF != 224 { bad = 1 }
        { for (i = 1; i < 113; i++) { d = $i - $(i + 112); if (d < 0) d = -d
                                      if (d > most) most = d } }
        END { print "# the largest difference is " most; exit bad || NR != 5 || most > 1e-5 }'
    ok $? "$how: five steps are torch's"
done
done_testing
