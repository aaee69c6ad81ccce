#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Bring your own compute: the network of examples/byo.c trained by hand-written code and as
# modules gives the same bits, one goes on from the other's checkpoint, on 1 and 2 ranks; the
# C++ example learns the same.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/train.sh"
need_plugin
BYO=$ACCEL_BUILD/examples/byo
MODULES=$ACCEL_BUILD/tests/helpers/byo_modules

[ "$(wc -l <"$ACCEL_SRC/examples/byo.c")" -le 150 ]
ok $? "examples/byo.c has at most 150 lines"
tap_tmpdir
cluster_up --nodes 1

# go OUT RANKS PRECISION PROGRAM [ARG]...
go() {
    go_out=$1 go_ranks=$2 go_precision=$3
    shift 3
    train_config "$tap_tmp/byo.yaml" FULL_SHARD "$go_precision" "$go_ranks" 1 \
        "checkpoint: {every_steps: 50, keep: 9}"
    go_program=$1
    shift
    run_srun --accel-config="$tap_tmp/byo.yaml" "$go_program" "$tap_tmp/$go_out" "$@"
}

# half FROM TO: TO begins with FROM's checkpoint of step 50
half() {
    mkdir -p "$tap_tmp/$2/checkpoints"
    cp -R "$tap_tmp/$1"/checkpoints/step_*50 "$tap_tmp/$2/checkpoints/"
    awk 'NR <= 50' "$tap_tmp/$1/log.jsonl" >"$tap_tmp/$2/log.jsonl"
}

go hand 2 no "$BYO" 100
ok $? "100 steps by hand on 2 ranks" || bail_out "byo does not run"
go modules 2 no "$MODULES" 100
ok $? "100 steps as modules"
each_step_once "$tap_tmp/hand/log.jsonl" 100
ok $? "every step is in the log"
same_bits "$tap_tmp/hand/log.jsonl" "$tap_tmp/modules/log.jsonl"
ok $? "the same losses, bit for bit"
go ops 2 no "$MODULES" 100 ops
close_losses "$tap_tmp/hand/log.jsonl" "$tap_tmp/ops/log.jsonl" 100 1e-6 \
    "the library's own ops: within 1e-6"
is "$(losses "$tap_tmp/hand/log.jsonl" | awk 'NR == 1 { a = $2 } END { print ($2 < a / 4) }')" 1 \
    "the loss falls to less than a quarter"

half hand to-modules
go to-modules 2 no "$MODULES" 100
like "$srun_out" "resumed from .*step 50" "modules go on from the checkpoint of units"
same_bits "$tap_tmp/hand/log.jsonl" "$tap_tmp/to-modules/log.jsonl"
ok $? "with the same bits"
half modules to-hand
go to-hand 2 no "$BYO" 100
like "$srun_out" "resumed from .*step 50" "units go on from the checkpoint of modules"
same_bits "$tap_tmp/modules/log.jsonl" "$tap_tmp/to-hand/log.jsonl"
ok $? "with the same bits"
for file in MANIFEST rank_00000-of-00002.h5 rank_00001-of-00002.h5; do
    [ -s "$(echo "$tap_tmp"/hand/checkpoints/step_*100)/$file" ] || diag "no $file"
done

# Values would be bfloat16, which the examples do not read.
for program in "$BYO" "$BYO"_cpp; do
    [ -x "$program" ] || continue
    go narrow 1 bf16 "$program" 5
    is $? 65 "${program##*/} refuses mixed_precision: bf16"
    like "$srun_out" "mixed_precision: 'no'" "and says what to do"
done

go one 1 no "$BYO" 20
awk 'NR <= 20' "$tap_tmp/hand/log.jsonl" >"$tap_tmp/twenty.jsonl"
isnt "$(worst_difference "$tap_tmp/one/log.jsonl" "$tap_tmp/twenty.jsonl")" none "one rank trains too"

# Told to stop in the middle, and started again.
printf 'distributed_type: "NO"\nuse_cpu: true\n' >"$tap_tmp/one.yaml"
ACCEL_CONFIG=$tap_tmp/one.yaml
export ACCEL_CONFIG
# Of so many steps that only the signal ends it, however late that comes.
"$BYO" "$tap_tmp/stopped" 2000000000 2>"$tap_tmp/stopped.out" &
pid=$!
wait_for_step "$tap_tmp/stopped/log.jsonl" 2 || diag "no step: $(cat "$tap_tmp/stopped.out")"
kill -USR1 $pid
wait $pid
is $? 85 "a signal stops it, saved"
end=$(($(losses "$tap_tmp/stopped/log.jsonl" | wc -l) + 100))
"$BYO" "$tap_tmp/stopped" $end 2>"$tap_tmp/again.out"
ok $? "it goes on to its end"
like "$(cat "$tap_tmp/again.out")" "resumed from" "from where it stopped"
each_step_once "$tap_tmp/stopped/log.jsonl" $end
ok $? "with each step once"
unset ACCEL_CONFIG

if [ -x "$ACCEL_BUILD/examples/byo_cpp" ]; then
    go cpp 2 no "$ACCEL_BUILD/examples/byo_cpp" 100
    ok $? "100 steps in C++ on 2 ranks"
    is "$(losses "$tap_tmp/cpp/log.jsonl" |
        awk 'NR == 1 { a = $2 } END { print (NR == 100 && $2 < a / 4) }')" 1 \
        "the loss falls to less than a quarter"
else
    skip 2 "no C++ compiler"
fi
if command -v g++ >/dev/null 2>&1; then
    printf '#include <accel.h>\nint main() { return accel_version() == nullptr; }\n' >"$tap_tmp/a.cpp"
    is "$(g++ -std=c++11 -Wall -Wextra -pedantic -Werror -I "$ACCEL_SRC/runtime" -c \
        -o "$tap_tmp/a.o" "$tap_tmp/a.cpp" 2>&1)" "" "accel.h is C++ without a warning"
else
    skip 1 "no g++"
fi
cluster_down
done_testing
