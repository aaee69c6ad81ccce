#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Mended: a build took 7 min 50 s with a CUDA toolkit: kernels were made for three architectures.
# configure builds kernels for the GPUs of the machine, for one architecture where there is none,
# and for all only when asked: with an nvcc and an nvidia-smi that only answer, and the macro of
# configure alone. Kernels of the architecture before are built again.
# shellcheck source=tests/t/tap.sh
. "$(dirname "$0")/../t/tap.sh"

command -v autoconf >/dev/null 2>&1 || skip_all "autoconf is not installed"
tap_tmpdir
cd "$tap_tmp" || bail_out "no directory"

# ---- make after a configure for another GPU: its nvcc only says that it was called ----
object=runtime/backend/cuda/waits.o
built() { # ARCHITECTURE: what make compiles
    make -s -C "$ACCEL_BUILD" NVCC="echo compiled:" \
        CUDA_NVCCFLAGS="-arch=$1" cuda_built_with="$tap_tmp/built-with" $object 2>&1 |
        grep -o "compiled: -arch=$1"
}
if [ -f "$ACCEL_BUILD/$object" ]; then
    is "$(built sm_80)" "compiled: -arch=sm_80" "objects of unknown options are built again"
    touch -r "$ACCEL_SRC/configure.ac" built-with
    is "$(built sm_80)" "" "not where the options are the same"
    is "$(built sm_90)" "compiled: -arch=sm_90" "but where they are others"
else
    skip 3 "$object is not built"
fi

# ---- configure ----
mkdir bin m4
cp "$ACCEL_SRC"/m4/accel_with_cuda.m4 m4/
cat >configure.ac <<'END'
AC_INIT([arch], [1])
m4_include([m4/accel_with_cuda.m4])
cross_compiling=no
NVCC=nvcc
_ACCEL_CUDA_ARCH
echo "archs:$accel_cuda_archs"
echo "gencode:$accel_cuda_gencode"
AC_OUTPUT
END
autoconf >log 2>&1
ok $? "the macro is good autoconf" || diag "$(tail -n 5 log)"
unlike "$(cat log)" 'warning|error' "without a warning"

cat >bin/nvcc <<'END'
#!/bin/sh
for code in $FAKE_CODES; do echo "sm_$code"; done
END
cat >bin/nvidia-smi <<'END'
#!/bin/sh
[ "$FAKE_CAPS" ] || exit 9
echo "$*" >>smi
for capability in $FAKE_CAPS; do echo "$capability"; done
END
chmod +x bin/nvcc bin/nvidia-smi
arch() { # CAPABILITIES [OPTION]...: what configure would build for
    FAKE_CAPS=$1 FAKE_CODES=${codes:-75 80 90 100 120} PATH=$tap_tmp/bin:$PATH
    export FAKE_CAPS FAKE_CODES PATH
    shift
    got=$(sh ./configure "$@" 2>&1)
    code=$?
    archs=$(echo "$got" | sed -n 's/^archs: *//p')
    count=$(echo "$got" | grep '^gencode' | grep -o 'code=sm_' | wc -l | tr -d ' ')
}
arch 9.0
is "$archs" "sm_90 and PTX: this machine's; --with-cuda-arch=all for packages" "one GPU: its own"
contains "$got" \
    "-gencode arch=compute_90a,code=sm_90a -DACCEL_CUDA_SM90A -gencode arch=compute_90,code=compute_90" \
    "code for it, and PTX for newer ones"
contains "$(cat smi)" "--query-gpu=compute_cap" "the driver is asked"
arch "9.0 9.0 8.0 9.0"
is "${archs%%:*}/$count" "sm_80 sm_90 and PTX/2" "GPUs of two kinds: each once, the newest last"
arch "12.0"
is "${archs%%:*}" "sm_120 and PTX" "two digits before the point"
arch ""
is "$archs" "sm_80 and PTX: no GPU here; --with-cuda-arch=all for packages" "no GPU: the oldest"
arch "13.0"
like "$archs" '^sm_80 and PTX: nvcc and accel have nothing for this machine.s 130 ?; ' \
    "a GPU that nvcc does not know: PTX of the oldest"
arch "7.5"
like "$archs" '^sm_80 and PTX: .* 75 ?; ' "one that accel cannot use"
arch "Error 9.0"
is "${archs%%:*}" "sm_90 and PTX" "what is no number is skipped"
rm -f smi
arch 9.0 --with-cuda-arch=all
is "$archs/$count" "sm_80 sm_90 sm_100 and PTX/3" "all"
codes="80 90" arch 9.0 --with-cuda-arch=all
is "$archs/$count" "sm_80 sm_90 and PTX/2" "of those that nvcc knows"
arch 9.0 --with-cuda-arch=80,100
is "$archs/$count" "sm_80 sm_100 and PTX/2" "a list"
[ ! -e smi ]
ok $? "the driver is not asked then"
arch 9.0 --with-cuda-arch=90
plain=$got
arch 9.0 --with-cuda-arch=90a
is "$archs/$got" "sm_90 and PTX/$plain" "90a is the same as 90"
arch 9.0 --with-cuda-arch=80,90a,90,80
is "$archs/$count" "sm_80 sm_90 and PTX/2" "an architecture that is named twice is built once"
codes="80 90" arch 9.0 --with-cuda-arch=80,100
is "$code" 1 "a list that nvcc cannot do stops"
contains "$got" "nvcc has no sm_100 (it has sm_80 sm_90 )" "with what there is"
mv bin/nvidia-smi bin/gone
arch 9.0
like "$archs" '^sm_80 and PTX: (no GPU here|this machine)' "without nvidia-smi it goes on"
done_testing
