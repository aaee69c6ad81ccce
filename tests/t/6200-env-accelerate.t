#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# What a task under srun gets of Accelerate's contract: the same variables as accel launch
# prints for the same file, for every type; ranks node by node, however Slurm placed them.
# What the tasks expand stands in single quotes.
# shellcheck disable=SC2016
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"

need_plugin
can_mnt_mode || skip_all "two nodes with PMIx need mount namespaces"
cluster_up --nodes 2 --mode mnt
tap_tmpdir
cd "$tap_tmp" || bail_out "no directory"

# Variables of the contract, without those of one task or one rendezvous.
shared='^(ACCELERATE|FSDP|PARALLELISM_CONFIG|MEGATRON_LM|GROUP_WORLD|ROLE_(N|W)|TORCH_|TORCHELASTIC_[^E]|WORLD_SIZE|KMP)'
for type in NO MULTI_CPU MULTI_GPU MULTI_XPU FSDP FSDP2 DEEPSPEED MEGATRON_LM; do
    tasks=4 nodes=2
    [ $type != NO ] || tasks=1 nodes=1
    case $type in
    FSDP) printf 'fsdp_config:\n  fsdp_sharding_strategy: FULL_SHARD\n  fsdp_state_dict_type: FULL_STATE_DICT\n' ;;
    FSDP2) printf 'fsdp_config:\n  fsdp_version: 2\n  fsdp_reshard_after_forward: false\nparallelism_config:\n  parallelism_config_dp_shard_size: 2\n  parallelism_config_tp_size: 2\n' ;;
    DEEPSPEED) printf 'deepspeed_config:\n  zero_stage: 2\n  gradient_clipping: 1.0\n' ;;
    MEGATRON_LM) printf 'megatron_lm_config:\n  megatron_lm_tp_degree: 2\n' ;;
    MULTI_GPU) printf 'debug: true\ndynamo_config:\n  dynamo_backend: inductor\n' ;;
    esac >maps
    { printf 'distributed_type: %s\nmixed_precision: bf16\n' "${type%2}" && cat maps; } >$type.yaml
    env -u OMP_NUM_THREADS "$ACCEL_BUILD/accel" launch --dry-run --config $type.yaml -n $tasks \
        --set num_machines=$nodes --main_process_ip 10.0.0.1 --main_process_port 1 --no_python true 2>err |
        grep -E "$shared" | sort >want
    # A file for each task: srun may cut lines of several tasks into each other.
    # shellcheck disable=SC2016
    run_srun -Q -n$tasks -N$nodes --accel-config=$type.yaml sh -c 'env >"env.$SLURM_PROCID"'
    cat env.* | grep -E "$shared" | sort | uniq -c | sed -n "s/^ *$tasks //p" >got
    rm env.*
    is "$(cat got)" "$(cat want)" "$type: srun gives what accel launch gives, on every task"
    [ "$(wc -l <got)" -ge 7 ]
    ok $? "$type: that is $(wc -l <got) variables"
done

# Ranks.
place='echo "$RANK/$WORLD_SIZE local $LOCAL_RANK/$LOCAL_WORLD_SIZE node $GROUP_RANK/$GROUP_WORLD_SIZE role $ROLE_RANK procid $SLURM_PROCID accel $ACCEL_RANK"'
run_srun -N2 -n4 --ntasks-per-node=2 -m cyclic --accel-config=MULTI_CPU.yaml sh -c "$place"
is "$(printf '%s\n' "$srun_out" | grep / | sort)" \
    "0/4 local 0/2 node 0/2 role 0 procid 0 accel 0
1/4 local 1/2 node 0/2 role 1 procid 2 accel 2
2/4 local 0/2 node 1/2 role 2 procid 1 accel 1
3/4 local 1/2 node 1/2 role 3 procid 3 accel 3" "-m cyclic: RANK counts node by node"
like "$srun_out" 'tasks are not placed node by node' "and srun says so"
run_srun -Q -N2 -n3 -m block --accel-config=MULTI_CPU.yaml sh -c "$place"
is "$(printf '%s\n' "$srun_out" | sed 's/ role.*//' | sort)" \
    "0/3 local 0/2 node 0/2
1/3 local 1/2 node 0/2
2/3 local 0/1 node 1/2" "2 and 1 tasks: each node's own number"
printf 'distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: HYBRID_SHARD\n' >hybrid.yaml
run_srun -N2 -n3 -m block --accel-config=hybrid.yaml echo ran
is "$srun_rc" 1 "a hybrid strategy with 2 and 1 tasks is refused"
like "$srun_out" 'error\[A0322\].*2,1' "with the numbers"
unlike "$srun_out" '^ran' "nothing ran"
run_srun -n2 --accel-config=NO.yaml echo ran
is "$srun_rc" 1 "so is NO with two tasks"
like "$srun_out" 'error\[A0303\]: .*NO.yaml:1' "with the line"

# Threads: the user's, the config's, and those of libaccel.
run_srun -Q -n1 -c2 --accel-config=MULTI_CPU.yaml sh -c 'echo $OMP_NUM_THREADS'
two=$srun_out
[ "$two" -ge 1 ] && [ "$two" -le 2 ]
ok $? "a CPU run gets the cores of its task ($two)"
run_srun -Q -n1 -c2 --accel-config=FSDP.yaml sh -c 'echo $OMP_NUM_THREADS $ACCEL_OMP_NUM_THREADS'
is "$srun_out" "1 1" "others get one, marked as ours"
no_node_drained
ok $? "no node is drained"
done_testing
