#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# A machine without Slurm, PMIx, UCX and HDF5: the tarball configures, builds and trains in one
# process. Checkpoints, which need HDF5, are refused before the first step, unless the config
# asks for none. The check of a GPU builds there, too, and says what it lacks.
. "$(dirname "$0")/tap.sh"

[ -f "$ACCEL_BUILD/Makefile" ] || skip_all "$ACCEL_BUILD is not configured"
tap_tmpdir
unset MAKEFLAGS MFLAGS MAKELEVEL SLURM_CONF
(cd "$ACCEL_BUILD" && make -s distdir distdir="$tap_tmp/source") >"$tap_tmp/log" 2>&1
ok $? "the source as in the tarball" || diag "$(tail -n 5 "$tap_tmp/log")"

mkdir "$tap_tmp/build"
cd "$tap_tmp/build" || bail_out "no directory"
# -O0: what is built is looked at here, not how fast it is.
passes "configured without all four" "$tap_tmp/source/configure" --without-slurm \
    --without-pmix --without-ucx --without-hdf5 --without-mpi --without-cuda CFLAGS=-O0
passes "it builds" make -s -j2 examples/train accel
unlike "$(ldd .libs/libaccel.so.* examples/.libs/train 2>&1)" 'pmix|libuc[pst]|hdf5|slurm|mpi' \
    "and needs none of them to run"

head -c 30000 "$ACCEL_SRC/README.md" >text.txt
printf 'distributed_type: "NO"\nuse_cpu: true\n' >saves.yaml
printf 'distributed_type: "NO"\nuse_cpu: true\naccel:\n  checkpoint: {save: false}\n' >bare.yaml
train() { # CONFIG
    OMP_NUM_THREADS=1 ACCEL_CONFIG=$1 timeout 120 examples/train --data text.txt --steps 3 \
        --layers 1 --heads 2 --width 32 --seq 16 --sample 0 --out "out-$1" 2>&1
}
out=$(train saves.yaml)
is $? 69 "a training that could not be saved is refused"
like "$out" 'error\[A0831\]: this accel was built without HDF5' "the message says why"
like "$out" 'cure: .*accel\.checkpoint\.save: false' "and the way out"
out=$(train bare.yaml)
is $? 0 "it trains when the config asks for no checkpoints" || diag "$out"
like "$out" 'checkpoints +none \(accel\.checkpoint\.save is false\)' "the plan says so"
like "$out" '^step 3/3 loss [0-9]' "to the last step"
is "$(find out-bare.yaml -name 'step_*')" "" "and nothing is saved"

out=$(make -s -j2 check-gpu 2>&1)
is $? 0 "make check-gpu" || diag "$(printf '%s\n' "$out" | tail -n 20)"
like "$out" 'test_cuda_kernels .*skipped: .*accel_cuda.so .*is not there' \
    "there is no module here, which it says"
like "$out" '2130-gpu-train.t .*skipped: .*is not built' "in the trainer's part as well"
done_testing
