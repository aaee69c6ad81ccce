#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The map of ranks to GPUs, cores and interfaces on recorded machines, as golden files:
# each tests/data/topo/*.map says in its head which machine (hwloc XML), which answers of
# NVML, arguments and environment, and then what must come out.
# shellcheck source=tests/t/tap.sh
. "$(dirname "$0")/tap.sh"

tap_tmpdir
data=$ACCEL_SRC/tests/data/topo
for kind in fake_nvml fake_nvml_old; do
    [ -f "$ACCEL_BUILD/tests/helpers/.libs/$kind.so" ] || skip_all "$kind.so is not built"
    mkdir "$tap_tmp/$kind"
    ln -s "$ACCEL_BUILD/tests/helpers/.libs/$kind.so" "$tap_tmp/$kind/libnvidia-ml.so.1"
done
cd "$data" || bail_out "no $data"

head_of() { # KEY FILE: its values, in the order of the lines
    sed -n -e '/^$/q' -e "s/^# $1: //p" "$2"
}

# What differs between terminals and machines: widths, the name of the host.
plain() {
    sed -e 's/  */ /g' -e 's/ $//' -e '/^host /d'
}

for map in *.map; do
    machine=$(head_of machine "$map").xml
    nvml=$(head_of nvml "$map")
    set --
    if [ -n "$nvml" ]; then
        kind=fake_nvml
        case $nvml in old/*) kind=fake_nvml_old ;; esac
        set -- HWLOC_XMLFILE="$machine" FAKE_NVML="${nvml#old/}.nvml" \
            LD_LIBRARY_PATH="$tap_tmp/$kind${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    fi
    for setting in $(head_of env "$map"); do set -- "$@" "$setting"; done
    # shellcheck disable=SC2046 # a list of arguments without blanks
    set -- "$@" "$ACCEL_BUILD/accel" topo $(head_of run "$map")
    [ -n "$nvml" ] || set -- "$@" --xml "$machine"
    env -u SLURM_PROCID -u SLURM_STEP_ID -u SLURM_STEP_TASKS_PER_NODE -u SLURM_NODEID \
        -u SLURM_LOCALID -u SLURM_GPUS_ON_NODE -u CUDA_VISIBLE_DEVICES -u HWLOC_XMLFILE \
        "$@" >"$tap_tmp/out" 2>&1
    echo "exit $?" >>"$tap_tmp/out"
    sed '1,/^$/d' "$map" >"$tap_tmp/want"
    is "$(plain <"$tap_tmp/out")" "$(plain <"$tap_tmp/want")" \
        "${map%.map}: $(head_of what "$map")"
done
done_testing
