#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Mended: a user file made on a login node turned a job for GPUs into one process on a CPU.
# A config that was made on a login node without GPUs does not change what a job file means:
# neither the number of tasks nor the device, and accel launch says so with both places (0181
# has srun). The default file of Accelerate counts where there is no other.
# What the tasks expand stands in single quotes.
# shellcheck disable=SC2016
# shellcheck source=tests/t/tap.sh
. "$(dirname "$0")/../t/tap.sh"

tap_tmpdir
cd "$tap_tmp" || bail_out "no directory"
accel=$ACCEL_BUILD/accel
XDG_CONFIG_HOME=$tap_tmp/xdg
export XDG_CONFIG_HOME
mkdir -p xdg/accel hub/accelerate
user=$tap_tmp/xdg/accel/config.yaml
printf 'distributed_type: MULTI_GPU\n' >gpu.yaml

# ---- what config default writes ----
CUDA_VISIBLE_DEVICES='' "$accel" config default >out 2>&1
is "$?/$(grep -c -E 'use_cpu|num_processes|num_machines' "$user")" "0/0" \
    "config default without a GPU says nothing of device and size"
is "$("$accel" check -q gpu.yaml 2>&1 >/dev/null)" "" "so that nothing contradicts a job file"
passes "it can be run by itself" "$accel" launch true

# ---- what an older one wrote ----
printf "distributed_type: 'NO'\nnum_processes: 1\nuse_cpu: true\n" >"$user"
told="$user:2:16: note: 'num_processes: 1' is not applied: it belongs to this file's distributed_type NO, but gpu.yaml:1 says MULTI_GPU"
"$accel" launch --config gpu.yaml -n 2 --no_python sh -c 'echo "$WORLD_SIZE cpu ${ACCELERATE_USE_CPU-}"' >out 2>err
is "$(sort -u out)" "2 cpu " "accel launch: two processes, and no word of CPUs"
contains "$(cat err)" "$user:3:10: note: 'use_cpu: true' is not applied: gpu.yaml:1 says distributed_type MULTI_GPU" \
    "and it says what is not applied, with both places"
"$accel" config show gpu.yaml >out 2>err
contains "$(cat err)" "$told" "the size, too, where no flag gives one"
like "$(cat out)" '^num_processes +$' "which the step's number of tasks says then"

# ---- Accelerate's own file ----
rm "$user"
HF_HOME=$tap_tmp/hub
export HF_HOME
printf 'compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_CPU\nnum_processes: 3\n' >hub/accelerate/default_config.yaml
"$accel" launch --dry-run --no_python true >out 2>err
is "$(grep ^WORLD_SIZE out)" "WORLD_SIZE=3" "Accelerate's default file counts where there is no other"
contains "$(cat err)" "$tap_tmp/hub/accelerate/default_config.yaml: note: using Accelerate's own config file" "which is said"
"$accel" launch --dry-run --config gpu.yaml -n 2 --no_python true >out 2>err
is "$(grep ^WORLD_SIZE out)/$(cat err)" "WORLD_SIZE=2/" "not beside a job file, as with accelerate launch"

# ---- a Python script on CPUs ----
command -v python3 >/dev/null 2>&1 || {
    skip 3 "no python3"
    done_testing
    exit
}
# One write, as two ranks share the file.
cat >show.py <<'END'
import os
line = f"{os.environ['WORLD_SIZE']} {os.environ.get('ACCELERATE_USE_CPU')}\n"
os.write(1, line.encode())
END
printf 'distributed_type: FSDP\nuse_cpu: true\n' >fsdp.yaml
"$accel" launch --config fsdp.yaml -n 2 show.py >out 2>err
is "$(sort -u out)" "2 True" "FSDP with use_cpu: the ranks of a script are told to meet on CPUs"
like "$(cat err)" '^accel: fsdp.yaml:1: on CPUs a script of Accelerate does not shard' "and that it shards nothing is said"
"$accel" launch --config fsdp.yaml -n 2 --no_python true >out 2>err
is "$(cat err)" "" "but not of a program"
done_testing
