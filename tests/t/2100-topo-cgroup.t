#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# GPUs under device cgroups, with stand-in device files that no driver serves: which ones a
# task may open (ENXIO, the kernel found no driver) and which not (EPERM), and the map that
# `accel topo` gives each rank then. NVML is a stand-in that hides what cannot be opened, as
# the true one does.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"
need_slurm
need_root "device cgroups"
for kind in devices freezer cpuset; do
    [ -w /sys/fs/cgroup/$kind/cgroup.procs ] ||
        skip_all "no cgroup hierarchy of version 1 that can be written ($kind)"
done
# shellcheck disable=SC2144 # one is enough
[ ! -d /sys/fs/cgroup/devices/slurm_n1 ] || skip_all "another Slurm has the cgroups"
fake=$ACCEL_BUILD/tests/helpers/.libs/fake_nvml.so
[ -f "$fake" ] || skip_all "fake_nvml.so is not built"

tap_tmpdir
chmod 755 "$tap_tmp"
cd "$tap_tmp" || bail_out "no directory"
unset CUDA_VISIBLE_DEVICES SLURM_GPUS_ON_NODE
mkdir driver
ln -s "$fake" driver/libnvidia-ml.so.1
cluster_up --gpus 3 --constrain --plugin none
devices=$cluster_dir/dev
[ -c "$devices/gpu02" ] || skip_all "device files cannot be made here"

# The GPUs of a recorded machine, each behind one of the device files.
HWLOC_XMLFILE=$ACCEL_SRC/tests/data/topo/nvswitch8.xml
FAKE_NVML=$tap_tmp/gpus
n=0
echo "driver 550.54.15" >gpus
for bus in 1b:00.0 43:00.0 9d:00.0; do
    echo "gpu 0000:$bus GPU-0000000$n 85899345920 0 NVIDIA H100" >>gpus
    echo "dev $devices/gpu0$n" >>gpus
    n=$((n + 1))
done
export HWLOC_XMLFILE FAKE_NVML

# One line per task: "LOCALID DEVICES | GPUS": which files open and the map's bus ids.
cat >task.sh <<'END'
#!/bin/sh
files=
for file in "$1"/gpu*; do
    why=$( (: <>"$file") 2>&1)
    case $why in
    *'Operation not permitted'*) files="$files EPERM" ;;
    *'No such device'*) files="$files ENXIO" ;;
    *) files="$files ${why:-opened}" ;;
    esac
done
map=$(LD_LIBRARY_PATH=$2 "$3" topo 2>&1) ||
    map=$(echo "$map" | sed -n 's/^error\[\(A[0-9]*\)\].*/gpu_ids refused \1/p')
echo "$SLURM_LOCALID$files |$(echo "$map" | sed -n 's/^gpu_ids *//p;s/^gpu_ids refused/&/p' |
    sed 's/^ */ /;s/gpu_ids //')"
END
chmod +x task.sh

# places OPTIONS...: for srun; the tasks' lines in order of their local ids in $places
places() {
    places=$(timeout "$HANG_S" srun --immediate=30 --mpi=none "$@" ./task.sh "$devices" \
        "$tap_tmp/driver${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "$ACCEL_BUILD/accel" 2>err | sort)
    [ -n "$places" ] || diag "$(cat err)"
}

places -n2 --gres=gpu:2
is "$places" "0 ENXIO ENXIO EPERM | 0000:1b:00.0
1 ENXIO ENXIO EPERM | 0000:43:00.0" "--gres=gpu:2: both see two, and each takes its own"
places -n2 --gpus-per-task=1
is "$places" "0 ENXIO EPERM EPERM | 0000:1b:00.0
1 EPERM ENXIO EPERM | 0000:43:00.0" "--gpus-per-task=1: both count from 0, and have different ones"
places -n2 --gpus-per-node=3 --gpu-bind=map_gpu:2,1
is "$places" "0 EPERM EPERM ENXIO | 0000:9d:00.0
1 EPERM ENXIO EPERM | 0000:43:00.0" "--gpu-bind=map_gpu:2,1"
places -n2 --gpus-per-node=2 --gpu-bind=none
is "$places" "0 ENXIO ENXIO EPERM | 0000:1b:00.0
1 ENXIO ENXIO EPERM | 0000:43:00.0" "--gpu-bind=none: no list, but the cgroup leaves no doubt"
grep -v '^dev' gpus >all
FAKE_NVML=$tap_tmp/all places -n2 --gpus-per-node=2 --gpu-bind=none
is "$places" "0 ENXIO ENXIO EPERM | refused A0412
1 ENXIO ENXIO EPERM | refused A0412" "where it does, that is refused"
places -n2 --gpus-per-node=3
is "$places" "0 ENXIO ENXIO ENXIO | refused A0413
1 ENXIO ENXIO ENXIO | refused A0413" "three GPUs for two ranks"

# Another job has GPU 0: the others are renumbered, the bus ids are not.
timeout "$HANG_S" sbatch --parsable -n1 --gres=gpu:1 -o /dev/null \
    --wrap "touch $tap_tmp/busy; exec sleep 300" >job 2>err
passes "another job has taken GPU 0" wait_until [ -e busy ]
places -n2 --gres=gpu:2
is "$places" "0 EPERM ENXIO ENXIO | 0000:43:00.0
1 EPERM ENXIO ENXIO | 0000:9d:00.0" "--gres=gpu:2 beside it"
timeout "$HANG_S" scancel "$(cat job)"

dir=$cluster_dir
cluster_down
ok $? "the cluster goes down"
passes "and leaves no cgroup behind" cluster_gone "$dir"
done_testing
