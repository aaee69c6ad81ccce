#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Python programs with a rank on each of two nodes, in a job that a higher partition preempts: with
# the notice SIGTERM, examples/ddp_loop.py with a data loader worker as bare srun; with SIGUSR1,
# examples/hf_trainer.py unchanged, with a worker and evaluations, as batch job. They come back by
# themselves; samples, losses and weights are those of a run that nobody disturbed.
# make check-python is the long form.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/t/peers.sh
. "$(dirname "$0")/peers.sh"
# shellcheck source=tests/preempt/preempted.sh
. "$ACCEL_SRC/tests/preempt/preempted.sh"
need_preempted
state=$tap_tmp/state
mkdir "$state" || bail_out "no directory"

preempted() { # NOTICE PROGRAM FORM MOMENT
    cluster_up --nodes 2 --cpus 2 --grace 60 --notice "$1"
    need_undisturbed "$2" ranks=2
    judged "$2-$1" program="$2" ranks=2 form="$3" grace=grace moment="$4" part=0.3
    no_node_drained
    ok $? "$1: no node is drained"
    cluster_down
}
preempted term ddp bare step
preempted user evaluation batch evaluation
done_testing
