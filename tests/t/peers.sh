# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
#
# For tests of the Python package beside torch and transformers, in the versions of
# scripts/peers.txt. Read after tap.sh and tap_tmpdir.

# Skips the whole test where there is none; else $python has the modules and imports accel_slurm
# of this tree, which loads the library just built; the test stands in $tap_tmp.
need_peers() { # MODULE[, MODULE]...
    [ -z "${PEERS_REASON:-}" ] || skip_all "$PEERS_REASON"
    python=${PEERS_PYTHON:-${ACCEL_TORCH_PYTHON:-python3}}
    "$python" -c "import $1" 2>/dev/null ||
        skip_all "$python has not all of $1 (scripts/test installs them, or set PEERS_PYTHON)"
    share=$tap_tmp/there/share/accel # as it is installed: srun and accel launch look there
    { mkdir -p "$share" && ln -s "$ACCEL_BUILD/.libs" "$tap_tmp/there/lib" &&
        ln -s "$ACCEL_SRC/python" "$share/python" &&
        ln -s "$ACCEL_SRC/python/site" "$share/python-site"; } || bail_out "no directory"
    ACCEL_ROOT=$tap_tmp/there
    PYTHONPATH=$ACCEL_SRC/python
    HF_HUB_OFFLINE=1 PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1 TQDM_DISABLE=1
    export ACCEL_ROOT PYTHONPATH HF_HUB_OFFLINE PYTHONDONTWRITEBYTECODE OMP_NUM_THREADS TQDM_DISABLE
    cd "$tap_tmp" || bail_out "no directory"
}
