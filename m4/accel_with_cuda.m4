# SPDX-License-Identifier: Apache-2.0
#
# ACCEL_WITH_CUDA: --with-cuda[=DIR|no], --with-nccl[=DIR|no]. Finds the CUDA runtime, nvcc
# and NCCL. Sets CUDA_CFLAGS, CUDA_LIBS, NVCC, NCCL_CFLAGS, NCCL_LIBS and the conditionals
# HAVE_CUDA (runtime and nvcc) and HAVE_NCCL. Nothing of this version is built with them, so
# there is no define yet. Only --with-cuda makes their absence an error.
AC_DEFUN([ACCEL_WITH_CUDA], [
    AS_IF([test -d /usr/local/cuda], [accel_default_cuda=/usr/local/cuda])
    ACCEL_DEPENDENCY([cuda], [CUDA], [optional], [cudart], [cuda_runtime_api.h], [cudart],
        [cudaGetDeviceCount], [nvidia-cuda-toolkit], [cuda-toolkit],
        [CUDA runtime and compiler])
    AC_PATH_PROG([NVCC], [nvcc], [], [$PATH:${with_cuda:-/usr/local/cuda}/bin])
    ACCEL_DEPENDENCY([nccl], [NCCL], [optional], [nccl], [nccl.h], [nccl],
        [ncclGetVersion], [libnccl-dev], [libnccl-devel],
        [NCCL, collectives between GPUs])
    AM_CONDITIONAL([HAVE_CUDA], [test $accel_with_cuda = on && test -n "$NVCC"])
    AM_CONDITIONAL([HAVE_NCCL], [test $accel_with_nccl = on])
])
