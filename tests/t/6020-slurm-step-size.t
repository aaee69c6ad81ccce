#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# A step whose size is not the config's is refused before its tasks start, with both
# numbers and what to change; the allocation is given back.
# What the tasks expand stands in single quotes.
# shellcheck disable=SC2016
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"

need_plugin
cluster_up --nodes 1
tap_tmpdir
cd "$tap_tmp" || bail_out "no directory"
printf 'distributed_type: MULTI_CPU\nnum_processes: 4\n' >four.yaml
printf 'distributed_type: MULTI_CPU\nnum_processes: 2\nnum_machines: 2\n' >two-nodes.yaml
printf 'distributed_type: MULTI_CPU\n' >any.yaml
cat >mesh.yaml <<'END'
distributed_type: FSDP
fsdp_config: {fsdp_version: 2}
parallelism_config: {dp_shard_size: 2, tp_size: 2}
END

refused() { # DESCRIPTION ARG...
    refused_what=$1
    shift
    run_srun "$@" sh -c 'echo ran'
    is "$srun_rc" 1 "$refused_what: exit 1"
    unlike "$srun_out" '^ran' "$refused_what: no task ran"
}

refused "too few" -n2 --accel-config=four.yaml
like "$srun_out" 'accel: error\[A0301\]: .*four.yaml:2: num_processes is 4, but this step has 2 tasks$' "both numbers, file and line"
like "$srun_out" 'cure: request 4 tasks \(-n 4;.*num_processes: 2 in the file' "what to change"
refused "too many" -n6 --overcommit --accel-config=four.yaml
like "$srun_out" 'num_processes is 4, but this step has 6 tasks$' "too many: both numbers"
refused "nodes" -n2 -N1 --accel-config=two-nodes.yaml
like "$srun_out" 'error\[A0302\]: .*two-nodes.yaml:3: num_machines is 2, but this step has 1 node$' "nodes: both numbers"
refused "mesh" -n3 --accel-config=mesh.yaml
like "$srun_out" 'error\[A0130\]: .*/mesh\.yaml:3: .* do not fill 3 processes: dp_shard 2 x tp 2 = 4$' \
    "mesh: the sizes and their product"
run_srun -n4 --overcommit --accel-config=mesh.yaml sh -c 'echo ran'
is "$(printf '%s\n' "$srun_out" | grep -c '^ran$')" 4 "a mesh that fits runs"
run_srun -n3 --accel-config=any.yaml sh -c 'echo ran'
is "$(printf '%s\n' "$srun_out" | grep -c '^ran$')" 3 "a config without num_processes takes any number"

srun_out=$(timeout "$HANG_S" salloc -Q -n2 srun --accel-config=four.yaml sh -c 'echo ran' 2>&1)
is $? 1 "inside salloc -n2: refused"
like "$srun_out" 'num_processes is 4, but this step has 2 tasks$' "inside salloc: both numbers"
srun_out=$(timeout "$HANG_S" salloc -Q -n4 --accel-config=four.yaml srun sh -c 'echo $RANK' 2>&1 | sort)
is "$(printf "%s\n" "$srun_out" | paste -sd " ")" "0 1 2 3" "salloc hands the option to its steps"
nothing_left() {
    [ -z "$(squeue -h)" ]
}
wait_until nothing_left
ok $? "no allocation is left"
no_node_drained
ok $? "no node is drained"
done_testing
