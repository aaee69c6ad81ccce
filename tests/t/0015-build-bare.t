#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# A machine without Slurm, PMIx, UCX and HDF5: the tarball configures, builds and trains in one
# process. Checkpoints, which need HDF5, are refused before the first step, unless the config
# asks for none. The check of a GPU builds there, too, and says what it lacks.
# A CUDA toolkit that is too old is not used.
#
# Objects that cannot differ are those of the tree's own build: they would take a minute more.
. "$(dirname "$0")/tap.sh"

[ -f "$ACCEL_BUILD/Makefile" ] || skip_all "$ACCEL_BUILD is not configured"
tap_tmpdir
unset SLURM_CONF
(cd "$ACCEL_BUILD" && make -s distdir distdir="$tap_tmp/source") >"$tap_tmp/log" 2>&1
ok $? "the source as in the tarball" || diag "$(tail -n 5 "$tap_tmp/log")"

# A CUDA toolkit of another age: what configure looks for, and a compiler that tells its version.
toolkit=$tap_tmp/toolkit
mkdir -p "$toolkit/bin" "$toolkit/include" "$toolkit/lib/pkgconfig" "$tap_tmp/build"
echo 'int cudaGetDeviceCount(int *count);' >"$toolkit/include/cuda_runtime_api.h"
echo 'int cudaGetDeviceCount(int *count) { return !count; }' >"$toolkit/runtime.c"
cc -shared -fPIC -o "$toolkit/lib/libcudart.so" "$toolkit/runtime.c" ||
    bail_out "no library for the toolkit"
cat >"$toolkit/lib/pkgconfig/cudart.pc" <<END
Name: cudart
Description: runtime
Version: 11.8
Libs: -L$toolkit/lib -lcudart
Cflags: -I$toolkit/include
END
cat >"$toolkit/bin/nvcc" <<'END'
#!/bin/sh
echo 'Cuda compilation tools, release 11.8, V11.8.89'
END
chmod +x "$toolkit/bin/nvcc"

cd "$tap_tmp/build" || bail_out "no directory"
bare="--without-slurm --without-pmix --without-ucx --without-hdf5 --without-mpi"
# Each file compiled once, and for this build only.
bare="$bare --disable-static --disable-dependency-tracking"
bare="$bare --prefix=$(sed -n 's/^prefix = //p' "$ACCEL_BUILD/Makefile")" # as of what is taken from there
# shellcheck disable=SC2086 # several words
out=$("$tap_tmp/source/configure" $bare --with-cuda="$toolkit" 2>&1)
is $? 1 "configure with a CUDA toolkit that is too old ends"
like "$out" 'error: --with-cuda: .*/nvcc is of CUDA 11\.8; 12\.0 or newer is needed' "and says so"
# -O0: what is built is looked at here, not how fast it is.
# shellcheck disable=SC2086 # several words
out=$(PKG_CONFIG_PATH=$toolkit/lib/pkgconfig NVCC=$toolkit/bin/nvcc \
    "$tap_tmp/source/configure" $bare CFLAGS=-O0 2>&1)
is $? 0 "configured without all four" || diag "$out"
like "$out" ' cuda +off +.*/nvcc is of CUDA 11\.8; 12\.0 or newer is needed: no GPUs' \
    "and without CUDA, where it is found and not asked for"

built_with_sanitizer || "$ACCEL_SRC/tests/t/alike_objects.pl" "$ACCEL_SRC" "$ACCEL_BUILD" . ||
    bail_out "no objects"
passes "it builds" make -s -j2 examples/train accel
unlike "$(ldd .libs/libaccel.so.* examples/.libs/train 2>&1)" 'pmix|libuc[pst]|hdf5|slurm|mpi' \
    "and needs none of them to run"

head -c 30000 "$ACCEL_SRC/README.md" >text.txt
printf 'distributed_type: "NO"\nuse_cpu: true\n' >saves.yaml
printf 'distributed_type: "NO"\nuse_cpu: true\naccel:\n  checkpoint: {save: false}\n' >bare.yaml
train() { # CONFIG
    OMP_NUM_THREADS=1 ACCEL_CONFIG=$1 timeout "$HANG_S" examples/train --data text.txt --steps 3 \
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
like "$out" 'test_cuda_kernels .*skipped: .*accel_cuda.so .*does not exist' \
    "there is no module here, which it says"
like "$out" '2130-gpu-train.t .*skipped: .*is not built' "in the trainer's part as well"
done_testing
