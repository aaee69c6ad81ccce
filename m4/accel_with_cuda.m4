# SPDX-License-Identifier: Apache-2.0
#
# ACCEL_WITH_CUDA: --with-cuda[=DIR|no], --with-cuda-arch=LIST|all, --with-nccl[=DIR|no]. Finds
# the CUDA runtime, cuBLASLt, nvcc and NCCL. The CUDA module is built when all of the first
# three work together; only --with-cuda makes their absence an error. Sets NVCC,
# CUDA_NVCCFLAGS (warnings and architectures), CUDA_MODULE_LIBS (runtime static), CUDA_CFLAGS,
# CUDA_LIBS, NCCL_CFLAGS, NCCL_LIBS and the conditionals HAVE_CUDA and HAVE_NCCL.

# The version of nvcc, whose toolkit the module is built with: 12.0 or newer.
AC_DEFUN([_ACCEL_CUDA_VERSION], [
    AC_MSG_CHECKING([the version of $NVCC])
    accel_cuda_version=`$NVCC --version 2>/dev/null | sed -n 's/.*release \([[0-9]][[0-9.]]*\).*/\1/p'`
    AC_MSG_RESULT([${accel_cuda_version:-it does not say}])
    AS_VERSION_COMPARE([${accel_cuda_version:-0}], [12.0],
        [accel_cuda_why="$NVCC is of CUDA ${accel_cuda_version:-?}; 12.0 or newer is needed"])
])

# The compute capabilities of this machine's GPUs as the driver tells them, "80 90"; blank where
# there is none, or none that accel can use.
AC_DEFUN([_ACCEL_CUDA_HERE], [
    AC_MSG_CHECKING([for the GPUs of this machine])
    accel_cuda_smi=nvidia-smi accel_cuda_here=
    AS_IF([(timeout --version) >/dev/null 2>&1], [accel_cuda_smi="timeout 30 nvidia-smi"])
    AS_IF([test "x$cross_compiling" != xyes], [
        accel_cuda_here=`$accel_cuda_smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null |
            sed -n 's/^ *\([[0-9]][[0-9]]*\)\.\([[0-9]]\) *$/\1\2/p' | sort -n -u | tr '\n' ' '`])
    AC_MSG_RESULT([${accel_cuda_here:-none}])
])

# What the kernels are built for. Code for 90 is for sm_90a, as all devices of 9.0 are: 90a is the
# same as 90. A list that was asked for must be all there. Else it is the GPUs of this machine;
# where it has none, sm_80, whose PTX every newer one translates when a run starts. All of them
# take minutes and are for those who do not know the GPUs: packagers.
AC_DEFUN([_ACCEL_CUDA_ARCH], [
    AC_ARG_WITH([cuda-arch], [AS_HELP_STRING([--with-cuda-arch=LIST|all],
        [compute capabilities to build kernels for, as 80,90 (90a is the same as 90); PTX of the
         last serves newer devices; all: 80,90,100, those that nvcc knows, for packages
         @<:@those of this machine's GPUs, else 80@:>@])],
        [accel_cuda_want=$withval], [accel_cuda_want=])
    accel_cuda_known=" `$NVCC --list-gpu-code 2>/dev/null | tr '\n' ' '`"
    accel_cuda_archs= accel_cuda_gencode= accel_cuda_for=
    accel_cuda_list=`echo "$accel_cuda_want" | tr , ' '`
    AS_CASE([$accel_cuda_want],
        [all], [accel_cuda_list="80 90 100"],
        [''], [_ACCEL_CUDA_HERE
            for accel_arch in $accel_cuda_here; do
                AS_IF([test $accel_arch -ge 80], [AS_CASE([$accel_cuda_known],
                    [*" sm_$accel_arch "*], [accel_cuda_list="$accel_cuda_list $accel_arch"])])
            done
            AS_IF([test -n "$accel_cuda_list"], [accel_cuda_for="this machine's"],
                [test -n "$accel_cuda_here"],
                [accel_cuda_for="$NVCC and accel have nothing for this machine's $accel_cuda_here"],
                [accel_cuda_for="no GPU here"])
            accel_cuda_for=": $accel_cuda_for; --with-cuda-arch=all for packages"
            AS_IF([test -z "$accel_cuda_list"], [accel_cuda_list=80])])
    for accel_arch in $accel_cuda_list; do
        AS_IF([test $accel_arch = 90a], [accel_arch=90])
        AS_CASE(["$accel_cuda_archs "], [*" sm_$accel_arch "*], [continue])
        AS_CASE([$accel_cuda_known], [*" sm_$accel_arch "*], [
            accel_cuda_code=$accel_arch
            AS_IF([test $accel_arch = 90], [accel_cuda_code=90a])
            accel_cuda_gencode="$accel_cuda_gencode -gencode arch=compute_$accel_cuda_code,code=sm_$accel_cuda_code"
            accel_cuda_archs="$accel_cuda_archs sm_$accel_arch"
            accel_cuda_last=$accel_arch],
        [AS_CASE([$accel_cuda_want], [''|all], [], [AC_MSG_ERROR(
            [--with-cuda-arch=$accel_cuda_want: $NVCC has no sm_$accel_arch (it has$accel_cuda_known)])])])
    done
    # Kernels with wgmma are there where code for sm_90a is; the PTX has none of it.
    AS_CASE([$accel_cuda_gencode], [*sm_90a*],
        [accel_cuda_gencode="$accel_cuda_gencode -DACCEL_CUDA_SM90A"])
    AS_IF([test -n "$accel_cuda_archs"], [
        accel_cuda_gencode="$accel_cuda_gencode -gencode arch=compute_$accel_cuda_last,code=compute_$accel_cuda_last"
        accel_cuda_archs="$accel_cuda_archs and PTX$accel_cuda_for"])
])

# Does nvcc build and link a kernel with cuBLASLt? One architecture is enough.
AC_DEFUN([_ACCEL_CUDA_TRY], [
    AC_MSG_CHECKING([whether $NVCC builds a kernel and links cuBLASLt])
    cat >conftest.cu <<'ACEOF'
@%:@include <cublasLt.h>
@%:@include <cuda_runtime.h>
__global__ void set(float *x) { *x = 1; }
int main() { set<<<1, 1>>>(nullptr); return cublasLtGetVersion() == 0; }
ACEOF
    AS_IF([$NVCC -std=c++17 -arch compute_$accel_cuda_last $CUDA_CFLAGS -c -o conftest.o conftest.cu \
            >&AS_MESSAGE_LOG_FD 2>&1 &&
        $CXX -o conftest$EXEEXT conftest.o $CUDA_MODULE_LIBS -ldl -lpthread -lrt \
            >&AS_MESSAGE_LOG_FD 2>&1],
        [accel_cuda_works=yes], [accel_cuda_works=no])
    rm -f conftest.cu conftest.o conftest$EXEEXT
    AC_MSG_RESULT([$accel_cuda_works])
])

AC_DEFUN([ACCEL_WITH_CUDA], [
    AS_IF([test -d /usr/local/cuda], [accel_default_cuda=/usr/local/cuda])
    ACCEL_DEPENDENCY([cuda], [CUDA], [optional], [cudart], [cuda_runtime_api.h], [cudart],
        [cudaGetDeviceCount], [nvidia-cuda-toolkit], [cuda-toolkit],
        [CUDA runtime and compiler])
    AS_CASE([$accel_ask_cuda], [/*], [accel_cuda_bin=$accel_ask_cuda/bin:$PATH],
        [accel_cuda_bin=$PATH:/usr/local/cuda/bin])
    AC_PATH_PROG([NVCC], [nvcc], [], [$accel_cuda_bin])
    AC_ARG_VAR([NVCCFLAGS], [more options for nvcc])
    CUDA_MODULE_LIBS=`echo " $CUDA_LIBS " | sed 's/ -lcudart / -lcudart_static -lcublasLt /'`
    CUDA_NVCCFLAGS="-std=c++17 -O3 -Xcompiler -fPIC,-fvisibility=hidden,-Wall,-Wextra"
    AS_IF([test "x$enable_werror" = xyes],
        [CUDA_NVCCFLAGS="$CUDA_NVCCFLAGS -Werror all-warnings -Xcompiler -Werror"])
    accel_cuda_why=
    AS_IF([test $accel_with_cuda != on], [],
        [test "${enable_sanitizer:-no}" != no], [accel_cuda_why="not with --enable-sanitizer"],
        [test "$accel_cxx" != yes], [accel_cuda_why="no C++ compiler"],
        [test -z "$NVCC"], [accel_cuda_why="no nvcc (nvidia-cuda-toolkit / cuda-toolkit)"],
        [_ACCEL_CUDA_VERSION])
    AS_IF([test $accel_with_cuda = on && test -z "$accel_cuda_why"], [
        _ACCEL_CUDA_ARCH
        CUDA_NVCCFLAGS="$CUDA_NVCCFLAGS$accel_cuda_gencode"
        AS_IF([test -z "$accel_cuda_archs"], [accel_cuda_why="$NVCC is too old: no sm_80"], [
            _ACCEL_CUDA_TRY
            AS_IF([test $accel_cuda_works = yes],
                [accel_why_cuda="$accel_why_cuda,$accel_cuda_archs"],
                [accel_cuda_why="$NVCC with cuBLASLt does not work, see config.log"])])])
    AS_IF([test -n "$accel_cuda_why"], [
        accel_with_cuda=off
        accel_why_cuda=$accel_cuda_why
        AS_IF([test "x$accel_ask_cuda" != xdefault && test "${enable_sanitizer:-no}" = no],
            [AC_MSG_ERROR([--with-cuda: $accel_cuda_why])])])
    AC_SUBST([CUDA_NVCCFLAGS])
    AC_SUBST([CUDA_MODULE_LIBS])
    ACCEL_DEPENDENCY([nccl], [NCCL], [optional], [nccl], [nccl.h], [nccl],
        [ncclGetVersion], [libnccl-dev], [libnccl-devel],
        [NCCL, collectives between GPUs])
    AM_CONDITIONAL([HAVE_CUDA], [test $accel_with_cuda = on])
    AM_CONDITIONAL([HAVE_NCCL], [test $accel_with_nccl = on])
])
