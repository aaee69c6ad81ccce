#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Mended: FSDP with use_cpu trained so many unconnected copies, and nothing was said before the job.
# What srun and sbatch say before a job starts, and that nothing is refused for it: a user
# file that contradicts the job file, Python in a batch script without srun, FSDP with
# use_cpu and a script of Accelerate.
# What the tasks expand stands in single quotes.
# shellcheck disable=SC2016
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/../t/lib.sh"

need_plugin
cluster_up --nodes 1
tap_tmpdir
chmod 755 "$tap_tmp"
cd "$tap_tmp" || bail_out "no directory"
XDG_CONFIG_HOME=$tap_tmp/xdg
export XDG_CONFIG_HOME
mkdir -p xdg/accel
user=$tap_tmp/xdg/accel/config.yaml
printf 'distributed_type: MULTI_GPU\n' >gpu.yaml
printf 'distributed_type: FSDP\nuse_cpu: true\n' >fsdp.yaml

# ---- the user file ----
printf "distributed_type: 'NO'\nnum_processes: 1\nuse_cpu: true\n" >"$user"
run_srun -n2 --accel-config=gpu.yaml sh -c 'echo "world $WORLD_SIZE cpu ${ACCELERATE_USE_CPU-}"'
is "$(printf '%s\n' "$srun_out" | grep -c '^world 2 cpu $')" 2 "srun: two tasks, and no word of CPUs"
contains "$srun_out" "$user:2:16: note: 'num_processes: 1' is not applied: it belongs to this file's distributed_type NO, but $tap_tmp/gpu.yaml:1 says MULTI_GPU" \
    "srun names both places"
is "$(printf '%s\n' "$srun_out" | grep -c 'is not applied')" 2 "once for each value"
run_srun -Q -n2 --accel-config=gpu.yaml true
is "$srun_out" "" "-Q is quiet"
rm "$user"
run_srun -n2 --accel-config=gpu.yaml true
is "$srun_out" "" "nothing is said where nothing contradicts"

# ---- FSDP on CPUs ----
cat >python3 <<'END'
#!/bin/sh
echo "world $WORLD_SIZE cpu ${ACCELERATE_USE_CPU-}"
END
chmod +x python3
run_srun -n2 --accel-config=fsdp.yaml ./python3 train.py
is "$(printf '%s\n' "$srun_out" | grep -c '^world 2 cpu True$')" 2 "FSDP with use_cpu: its ranks are told to meet on CPUs"
like "$srun_out" 'accel: .*fsdp.yaml:1: on CPUs an Accelerate script does not shard' "and that they shard nothing is said"
run_srun -n2 --accel-config=fsdp.yaml sh -c './python3 train.py'
like "$srun_out" 'does not shard' "also within a shell"
run_srun -n2 --accel-config=fsdp.yaml true
is "$srun_out" "" "not of another program"

# ---- batch scripts ----
submit() { # WANT-ERE|none DESCRIPTION ARG...
    submit_want=$1
    submit_what=$2
    shift 2
    sbatch --parsable --hold -o /dev/null "$@" >out 2>err
    is $? 0 "$submit_what: submitted"
    if [ "$submit_want" = none ]; then
        is "$(cat err)" "" "$submit_what: nothing is said"
    else
        like "$(cat err)" "$submit_want" "$submit_what: the line is named"
    fi
    scancel "$(cat out)"
}
printf '#!/bin/sh\n#SBATCH --accel-config=gpu.yaml\n\npython train.py --x 1\n' >bare.sh
printf '#!/bin/sh\n#SBATCH --accel-config=gpu.yaml\npython prepare.py\nsrun python train.py\n' >step.sh
printf '#!/bin/sh\n#SBATCH --accel-config=gpu.yaml\n./all.sh\n' >calls.sh
printf '#!/bin/sh\npython train.py\n' >plain.sh
submit 'accel: bare.sh:4: Python runs once here, without a rank' "Python without srun" bare.sh
submit 'accel: --wrap: Python runs once here' "the same with --wrap" --accel-config=gpu.yaml --wrap 'python train.py'
submit none "with srun" step.sh
submit none "a script that calls another" calls.sh
submit none "a job without accel" plain.sh
no_node_drained
ok $? "no node is drained"
done_testing
