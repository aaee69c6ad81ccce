# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
#
# For tests that train or compute beside torch. Read after tap.sh and tap_tmpdir.

# Skips the whole test without torch and the modules; else $python has them, the test stands in
# $tap_tmp, and programs of ours run as one process in float32 on the CPU.
need_torch() { # MODULE[, MODULE]...
    python=${ACCEL_TORCH_PYTHON:-python3}
    "$python" -c "import torch, $1" 2>/dev/null ||
        skip_all "no torch and transformers in $python (set ACCEL_TORCH_PYTHON)"
    HF_HUB_OFFLINE=1 PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1 TQDM_DISABLE=1
    export HF_HUB_OFFLINE PYTHONDONTWRITEBYTECODE OMP_NUM_THREADS TQDM_DISABLE
    cd "$tap_tmp" || bail_out "no directory"
    printf 'use_cpu: true\ndistributed_type: "NO"\nmixed_precision: "no"\n' >one.yaml
    ACCEL_CONFIG=$tap_tmp/one.yaml
    export ACCEL_CONFIG
}
