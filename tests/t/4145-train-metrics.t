#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# examples/metrics: trained by one process, then evaluated from its checkpoint by 1 to 4
# ranks: 103 samples each time, whatever the number of ranks, and the same accuracy.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/train.sh"
need_plugin
METRICS=$ACCEL_BUILD/examples/metrics

[ "$(wc -l <"$ACCEL_SRC/examples/metrics.c")" -le 150 ]
ok $? "examples/metrics.c has at most 150 lines"
tap_tmpdir
cd "$tap_tmp" || bail_out "no directory"
cluster_up --nodes 1

# on RANKS [LINE...]: runs it, and leaves its last word in $said
on() {
    ranks=$1
    shift
    train_config metrics.yaml FULL_SHARD no "$ranks" 1
    printf '%s\n' "$@" >>metrics.yaml
    run_srun --accel-config=metrics.yaml "$METRICS"
    ok $? "it runs on $ranks ranks"
    said=$(printf '%s\n' "$srun_out" | grep '^accuracy ')
}
on 1
first=$said
like "$first" '^accuracy 0\.[89][0-9]* of 103 samples$' "it learns"
for n in 1 2 3 4; do
    on $n
    is "$said" "$first" "the same on $n ranks"
    contains "$srun_out" "resumed" "from the same weights"
done
on 3 "debug: true"
is "$said" "$first" "also with debug: true"
cluster_down
done_testing
