#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# examples/ddp_loop.py with a data loader worker, a rank on each of two nodes, in a job that a
# higher partition preempts: with the notice SIGTERM as bare srun, with SIGUSR1 as batch job. It
# comes back by itself; samples, losses and weights are those of a run that nobody disturbed.
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

for notice in term user; do
    form='bare'
    [ $notice = term ] || form='batch'
    cluster_up --nodes 2 --cpus 2 --grace 60 --notice $notice
    need_undisturbed ddp ranks=2 || break
    judged "ddp-$notice" program=ddp ranks=2 form=$form grace=grace moment=step part=0.3
    no_node_drained
    ok $? "$notice: no node is drained"
    cluster_down
done
done_testing
