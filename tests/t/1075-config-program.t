#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# accel_options.set under accel launch, which resolves the config before the program
# runs: what the user gave wins, the rest is the program's.
# shellcheck source=tests/t/tap.sh
. "$(dirname "$0")/tap.sh"

tap_tmpdir
cd "$tap_tmp" || bail_out "no directory"
HOME=$tap_tmp XDG_CONFIG_HOME=$tap_tmp/xdg
OMP_NUM_THREADS=1
export HOME XDG_CONFIG_HOME OMP_NUM_THREADS
unset ACCEL_CONFIG ACCEL_CONFIG_RESOLVED CUDA_VISIBLE_DEVICES SLURM_JOB_ID SLURM_PROCID
settings=$ACCEL_BUILD/tests/helpers/settings
printf 'distributed_type: FSDP\nuse_cpu: true\n' >open.yaml
printf 'distributed_type: FSDP\nuse_cpu: true\nmixed_precision: "no"\n' >given.yaml

# launch CONFIG SETTING...: sets code, and the lines of the program in out and err
launch() {
    file=$1
    shift
    "$ACCEL_BUILD/accel" launch -n 2 --config "$file" "$settings" "$@" >out 2>err
    code=$?
}

launch open.yaml mixed_precision=bf16 fsdp_sharding_strategy=SHARD_GRAD_OP
is "$code/$(sed 1q out)" \
    "0/2 ranks, config of srun, bfloat16, SHARD_GRAD_OP, set: mixed_precision fsdp_sharding_strategy" \
    "keys that the user leaves open are the program's" || diag "$(cat err)"
contains "$(cat err)" "the program sets mixed_precision: bf16" "and the log says so"
launch given.yaml mixed_precision=bf16
is "$code/$(sed 1q out)" "0/2 ranks, config of srun, float32, FULL_SHARD, set: " \
    "a key of the config file is the user's"
contains "$(cat err)" \
    "the program sets mixed_precision, but given.yaml:3 has precedence: no" "and the log says why"
ACCEL_MIXED_PRECISION=no launch open.yaml mixed_precision=bf16
contains "$(cat err)" "environment ACCEL_MIXED_PRECISION has precedence: no" "so is a variable"
"$ACCEL_BUILD/accel" launch -n 1 --config open.yaml --set mixed_precision=no "$settings" \
    mixed_precision=bf16 >out 2>err
contains "$(cat err)" "flag mixed_precision has precedence: no" "and a flag"
launch open.yaml num_processes=4
is "$code" 64 "the number of ranks is decided before the program starts"
contains "$(cat err)" "error[A0976]: the program's num_processes" "which it is told"
launch open.yaml mixed_precison=bf16
is "$code" 64 "a key that does not exist"
contains "$(cat err)" "did you mean 'mixed_precision'?" "is answered with the nearest"

# without a launcher the program reads all sources itself
mkdir -p xdg/accel
printf 'mixed_precision: bf16\n' >xdg/accel/config.yaml
"$settings" mixed_precision=no accel.device=cpu debug=true >out 2>err
is "$?/$(sed 1q out)" "0/1 ranks, config of built-in, bfloat16, NO_SHARD, set: accel.device debug" \
    "started by hand, the user's file wins as well"
done_testing
