#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# torch on two nodes, with two ranks each: one rank is killed, raises, stands still or ends with a
# code, and the others lose it in a collective of gloo. srun names that rank, or the rank of which
# nothing was heard.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/t/peers.sh
. "$(dirname "$0")/peers.sh"
need_plugin
can_mnt_mode || skip_all "two nodes need mount namespaces"
tap_tmpdir
need_peers torch
printf 'distributed_type: MULTI_CPU\nnum_processes: 4\n' >four.yaml
cat >lose.py <<'LOSE'
import datetime, os, signal, sys

import accel_slurm.failures

accel_slurm.failures.install()
import torch.distributed as dist
from torch import ones

dist.init_process_group("gloo")
dist.barrier()  # their starts may be far apart, their steps are not
group = dist.new_group(timeout=datetime.timedelta(seconds=int(sys.argv[3])))
numbers = ones(4)
for step in range(1_000_000):
    if step == 10 and dist.get_rank() == int(sys.argv[1]):
        if sys.argv[2] == "raise":
            raise ValueError("bad shape")
        if sys.argv[2] == "exit":
            os._exit(3)
        os.kill(os.getpid(), getattr(signal, sys.argv[2]))
    dist.all_reduce(numbers, group=group)
LOSE
loses() { # DESCRIPTION RANK HOW CODE TEXT [PATIENCE]
    run_srun -N2 --ntasks-per-node=2 --accel-config=four.yaml "$python" lose.py "$2" "$3" "${6:-600}"
    is "$srun_rc" "$4" "$1: srun ends with $4"
    like "$srun_out" "accel: job [0-9]+: rank $5\$" "and says: rank $5"
}

cluster_up --nodes 2 --cpus 2 --mode mnt
loses "killed" 2 SIGKILL 137 '2 \(n2\) failed first: killed by SIGKILL \(out of memory, or cancelled\)'
loses "a crash" 1 SIGSEGV 139 '1 \(n1\) failed first: killed by SIGSEGV'
loses "a code" 3 exit 3 '3 \(n2\) failed first: exited with code 3'
loses "an exception" 1 raise 1 '1 \(n1\) failed first: ValueError: bad shape \(lose.py:16\)'
loses "SIGSTOP" 1 SIGSTOP 1 \
    '[023] \(n[12]\) failed first, but blames another rank: RuntimeError: .*Timed out waiting.* \(lose.py:20\); ranks? .*1.* reported nothing' 10
no_node_drained
ok $? "no node is drained"
done_testing
