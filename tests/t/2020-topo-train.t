#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# What a run does with its places: a GPU that was given is used or refused, never left idle
# in silence; ranks that were given the same one, or one that is not there, end together
# with one message; threads are bound before the training starts, within the task's mask.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/t/train.sh
. "$(dirname "$0")/train.sh"

tap_tmpdir
fake=$ACCEL_BUILD/tests/helpers/.libs/fake_nvml.so
[ -f "$fake" ] || skip_all "fake_nvml.so is not built"
cd "$tap_tmp" || bail_out "no directory"
unset ACCEL_CONFIG ACCEL_CONFIG_RESOLVED CUDA_VISIBLE_DEVICES SLURM_GPUS_ON_NODE \
    SLURM_JOB_ID ACCEL_CUDA_MODULE \
    HWLOC_XMLFILE OMP_PROC_BIND GOMP_CPU_AFFINITY UCX_NET_DEVICES
FAKE_NVML=$ACCEL_SRC/tests/data/topo/pcie4.nvml
export FAKE_NVML
mkdir driver none
ln -s "$fake" driver/libnvidia-ml.so.1
train_text text
printf 'init 18\n' >mismatch
train_config cpu.yaml FULL_SHARD no 2 1
sed '/use_cpu/d' cpu.yaml >gpu.yaml
printf 'distributed_type: "NO"\n' >one.yaml
set -- --data text --steps 2 --layers 1 --width 32 --heads 2 --seq 32 --sample 0

alone() { # [VAR=VALUE]...: a single run; output in $out, status in $code
    out=$(env ACCEL_CONFIG=one.yaml "$@" timeout "$HANG_S" "$TRAIN" --data text --steps 2 --layers 1 \
        --width 32 --heads 2 --seq 32 --sample 0 --out "alone" 2>&1)
    code=$?
}
with_driver="LD_LIBRARY_PATH=$tap_tmp/driver${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"

if ldconfig -p 2>/dev/null | grep -q libnvidia-ml; then
    skip 5 "this machine has a driver"
else
    alone
    is "$code" 0 "no GPU was given and there is no driver: the CPU is used"
    like "$out" 'rank 0 .*: CPU, .*cores ' "and the map says so"
    like "$out" '  GPU  *none is used: there is no NVIDIA driver' "and why"
    alone HWLOC_XMLFILE="$ACCEL_SRC/tests/data/topo/pcie4.xml"
    is "$code" 0 "also of a node that has some"
    like "$out" 'warn.*this node has 4 NVIDIA GPUs, but .* the CPU: none is used: .*driver' "but it is said"
fi
alone "$with_driver" FAKE_NVML="$tap_tmp/mismatch"
like "$out" 'GPU  *none is used: .*Driver/library version mismatch' "a driver that does not work is a reason, too"
alone ACCEL_CUDA_MODULE=none.so "$with_driver"
is "$code" 0 "a driver, but no module, and nobody asked for a GPU"
like "$out" 'warn.*this node has 4 NVIDIA GPUs.*none is used: .*none.so.* does not exist' \
    "the CPU is used, and a warning says why"
alone SLURM_JOB_ID=1 "$with_driver"
like "$out" 'rank 0 .*: CPU, ' \
    "a step of Slurm takes none that it was not given"
unlike "$out" '  GPU  ' "nor looks for one"

# By itself: the first that can be used, whatever CUDA counts first.
stand_in=$ACCEL_BUILD/tests/cuda/accel_cuda.so
if [ -f "$stand_in" ] && ! built_with_sanitizer; then
    take() { alone ACCEL_CUDA_MODULE="$stand_in" "$with_driver" "$@"; }
    first=GPU-5ebe9f43-0b1c-4d2e-9f30-415263740000
    take FAKE_CUDA_DEVICES=4 FAKE_CUDA_BUS=$first=0000:01:00
    is "$code" 0 "a GPU, its driver and the module, and nothing that says which" || diag "$out"
    like "$out" 'rank 0 .*: GPU 0000:01:00.0 ' "the map says which one was taken"
    like "$out" '  GPU  *number 0 of 4, the default \(choose with CUDA_VISIBLE_DEVICES' "and why"
    like "$out" 'compute  *cuda, ' "and so does the plan"
    take FAKE_CUDA_DEVICES=4 FAKE_CUDA_BUS=$first=0000:21:00
    is "$code" 69 "another GPU than the one of that name"
    contains "$out" "A0414" "is refused"
    take FAKE_CUDA_DEVICES=nodriver
    is "$code" 69 "a GPU that was taken and cannot be opened"
    contains "$out" "A0443" "is refused as well"
    printf 'distributed_type: "NO"\nuse_cpu: true\n' >asked.yaml
    take ACCEL_CONFIG=asked.yaml
    is "$code" 0 "use_cpu: true takes none"
    like "$out" 'rank 0 .*: CPU, .*cores ' "and the CPU is used"
    unlike "$out" 'GPU' "without a word on GPUs"
else
    skip 11 "no stand-in for the CUDA module"
fi
alone CUDA_VISIBLE_DEVICES= SLURM_GPUS_ON_NODE=2
is "$code" 69 "GPUs given but hidden"
contains "$out" "A0412" "are refused"
alone CUDA_VISIBLE_DEVICES=1 "$with_driver"
is "$code" 69 "a GPU was given and cannot be used"
contains "$out" "GPU 0000:21:00.0" "it is named by its bus id"
like "$out" 'error\[A044[03]\]: ' "what is missing, the module or CUDA's driver, is said"
like "$out" '  cure: .*(use_cpu: true|driver)' "with the cure"
alone CUDA_VISIBLE_DEVICES=4 "$with_driver"
is "$code" 69 "a GPU that is not there"
contains "$out" "names '4', which matches none of the 4 usable GPUs" "is refused"
alone CUDA_VISIBLE_DEVICES=0 FAKE_NVML="$tap_tmp/mismatch" "$with_driver"
is "$code" 69 "a driver that does not work"
contains "$out" "Driver/library version mismatch" "its own words are shown"
if ldconfig -p 2>/dev/null | grep -q libnvidia-ml; then
    skip 2 "this machine has a driver"
else
    alone CUDA_VISIBLE_DEVICES=0
    is "$code" 69 "a GPU without a driver is no reason to take the CPU"
    contains "$out" "A0423" "and it says that there is none"
fi
printf 'use_cpu: true\n' >>one.yaml
alone CUDA_VISIBLE_DEVICES=1 "$with_driver"
is "$code" 0 "use_cpu: true leaves the GPU alone"
alone HWLOC_XMLFILE="$ACCEL_SRC/tests/data/topo/pcie4.xml"
unlike "$out" 'NVIDIA' "and nothing is to be said of it"
printf 'accel:\n  topology:\n    nic: nosuch0\n' >>one.yaml
alone
is "$code" 65 "an interface that is not there"
contains "$out" "has no interface 'nosuch0' that is up; it has:" "is refused, with those there are"

# ---- several ranks -------------------------------------------------------------------------

if ! command -v slurmctld >/dev/null || ! command -v munged >/dev/null; then
    skip 1 "no Slurm"
    done_testing
fi
cluster_up --plugin none
if ! srun --mpi=list 2>&1 | grep -q pmix; then
    skip 1 "Slurm has no PMIx here"
    done_testing
fi
# rank_env SCRIPT: what each task sets before it becomes the trainer
rank_env() {
    printf '#!/bin/sh\n%s\nexec "$@"\n' "$1" >task.sh
    chmod +x task.sh
}
step() { # CONFIG ARGS... (for srun, then the trainer's)
    step_config=$1
    shift
    ACCEL_CONFIG=$tap_tmp/$step_config run_srun -n2 --exclusive --mpi=pmix -K0 --label "$@"
}
once() { # TEXT DESCRIPTION
    is "$(printf '%s\n' "$srun_out" | grep -c -F "$1")" 1 "$2"
}

rank_env "CUDA_VISIBLE_DEVICES=3; export CUDA_VISIBLE_DEVICES"
step gpu.yaml env "$with_driver" ./task.sh "$TRAIN" "$@" --out same
is "$srun_rc" 65 "two ranks with one GPU are refused"
once "A0425" "by both, in one message"
# shellcheck disable=SC2016 # for the task's shell
rank_env 'CUDA_VISIBLE_DEVICES=$((SLURM_LOCALID * 9)); export CUDA_VISIBLE_DEVICES'
step gpu.yaml env "$with_driver" ./task.sh "$TRAIN" "$@" --out missing
is "$srun_rc" 69 "what only one rank lacks"
once "A0422" "ends both, and that one says why"
rank_env 'CUDA_VISIBLE_DEVICES=0,3; ACCEL_CUDA_MODULE=none.so
export CUDA_VISIBLE_DEVICES ACCEL_CUDA_MODULE'
step gpu.yaml env "$with_driver" ./task.sh "$TRAIN" "$@" --out both
is "$srun_rc" 69 "two ranks with a GPU each"
once "A0440" "are told once that the module for them is not there"
contains "$srun_out" "unset ACCEL_CUDA_MODULE" "with the cure"
ok "$([ ! -e both/log.jsonl ]; echo $?)" "and nobody computes on the CPU instead"

step cpu.yaml "$TRAIN" "$@" --out cpu
is "$srun_rc" 0 "two ranks on the CPU"
is "$(printf '%s\n' "$srun_out" | grep -c '^0:   rank [01] ')" 2 "rank 0 logs a line for each"
if [ "$(nproc)" -ge 2 ]; then
    is "$(printf '%s\n' "$srun_out" | sed -n 's/.*cores \([0-9,-]*\) .*/\1/p' | sort -u | wc -l)" 2 \
        "with cores of its own"
    unlike "$srun_out" 'threads not bound' "and bound to them"
else
    skip 2 "one CPU"
fi
printf 'accel:\n  topology:\n    bind: false\n' >>cpu.yaml
step cpu.yaml "$TRAIN" "$@" --out unbound
is "$srun_rc" 0 "accel.topology.bind: false"
contains "$srun_out" "threads not bound: accel.topology.bind is false" "is honoured"
sed -i '/^accel:/,$d' cpu.yaml

# The affinity of a running rank, seen from outside.
# shellcheck disable=SC2317 # called by wait_until
bound_ranks() { # N: are N ranks held to a part of the machine?
    count=0
    for file in $(holders_of "$tap_tmp/live" cmdline); do
        grep -q '^Name:[[:space:]]*train$' "${file%/*}/status" 2>/dev/null || continue
        now=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' "${file%/*}/status")
        [ -z "$now" ] || [ "$now" = "$whole" ] || count=$((count + 1))
    done
    [ "$count" -ge "$1" ]
}
if [ "$(nproc)" -ge 2 ]; then
    whole=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)
    ACCEL_CONFIG=$tap_tmp/cpu.yaml timeout "$HANG_S" srun -n2 --exclusive --mpi=pmix "$TRAIN" "$@" \
        --steps 1000000 --out "$tap_tmp/live" >live.out 2>&1 &
    live=$!
    kill_at_exit $live
    passes "every rank of a running step is bound to a part of the machine" \
        wait_until bound_ranks 2
    kill -TERM "$live"
    wait "$live" 2>/dev/null
else
    skip 1 "one CPU"
fi
cluster_down

# The interface by name, between two hosts; inside them the machine's own names are seen.
if can_net_mode && "$ACCEL_BUILD/accel" topo | grep -q '^nics .*eth0'; then
    cluster_up --plugin none --nodes 2 --mode net
    sed 's/num_machines: 1/num_machines: 2/' cpu.yaml >two.yaml
    printf 'accel:\n  topology:\n    nic: eth0\n' >>two.yaml
    ACCEL_CONFIG=$tap_tmp/two.yaml run_srun -N2 -n2 --mpi=pmix "$TRAIN" "$@" --out two
    is "$srun_rc" 0 "two hosts over the interface that is named"
    like "$srun_out" 'rank 0 .* nic eth0' "which the map shows"
    cluster_down
else
    skip 2 "no two hosts with an interface eth0"
fi
done_testing
