# comm/
libaccel_core_la_SOURCES += \
	runtime/comm/comm.c \
	runtime/comm/comm.h \
	runtime/comm/comm_error.c \
	runtime/comm/comm_impl.h \
	runtime/comm/comm_open.c \
	runtime/comm/comm_self.c \
	runtime/comm/comm_split.c \
	runtime/comm/comm_tell.c \
	runtime/comm/nccl/comm_nccl.c \
	runtime/comm/nccl/nccl.h \
	runtime/comm/nccl/nccl_chain.c \
	runtime/comm/nccl/nccl_connect.c \
	runtime/comm/nccl/nccl_load.c \
	runtime/comm/nccl/nccl_sum.c \
	runtime/comm/nccl/nccl_wait.c \
	runtime/comm/node_chain.c \
	runtime/comm/node_chain.h \
	runtime/comm/node_choice.c \
	runtime/comm/rank_order.c \
	runtime/comm/reduce.h \
	runtime/comm/shm/comm_shm.c \
	runtime/comm/shm/shm.h \
	runtime/comm/shm/shm_data.c \
	runtime/comm/shm/shm_wait.c \
	runtime/comm/shm/shm_window.c
if HAVE_UCX
libaccel_core_la_SOURCES += runtime/comm/ucx/comm_ucx.c \
	runtime/comm/ucx/ucx.h \
	runtime/comm/ucx/ucx_chain.c \
	runtime/comm/ucx/ucx_spread.c \
	runtime/comm/ucx/ucx_wire.c
else
libaccel_core_la_SOURCES += runtime/comm/ucx/no_ucx.c
endif

unit_tests += tests/unit/test_comm
tests_unit_test_comm_SOURCES = tests/unit/test_comm.c tests/unit/comm_groups.c \
	tests/unit/comm_ref.c \
	tests/unit/comm_ref.h

unit_tests += tests/unit/test_comm_reduce tests/unit/test_comm_faults

# libnccl.so.2 as tests want it: between processes of this machine; and one that lacks a
# function. -rpath makes it shared.
check_LTLIBRARIES += tests/cuda/fake_nccl.la tests/cuda/fake_nccl_incomplete.la
fake_nccl_ldflags = -module -avoid-version -shared -rpath /nowhere
fake_nccl_sources = tests/cuda/fake_nccl.c tests/cuda/fake_nccl.h \
	tests/cuda/fake_nccl_split.c tests/cuda/fake_nccl_sums.c
tests_cuda_fake_nccl_la_SOURCES = $(fake_nccl_sources)
tests_cuda_fake_nccl_la_LDFLAGS = $(fake_nccl_ldflags)
tests_cuda_fake_nccl_incomplete_la_SOURCES = $(fake_nccl_sources)
tests_cuda_fake_nccl_incomplete_la_CPPFLAGS = $(AM_CPPFLAGS) -DFAKE_NCCL_INCOMPLETE
tests_cuda_fake_nccl_incomplete_la_LDFLAGS = $(fake_nccl_ldflags)
unit_tests += tests/unit/test_comm_nccl
tests_unit_test_comm_nccl_SOURCES = tests/unit/test_comm_nccl.c \
	tests/unit/nccl_header.c tests/unit/comm_groups.c tests/unit/comm_ref.c \
	 tests/unit/comm_ref.h
tests_unit_test_comm_nccl_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CFLAGS) $(NCCL_CFLAGS) \
	-DNCCL_STANDIN='"$(abs_top_builddir)/tests/cuda/.libs/fake_nccl.so"' \
	-DNCCL_INCOMPLETE='"$(abs_top_builddir)/tests/cuda/.libs/fake_nccl_incomplete.so"'
unit_tests += tests/unit/test_comm_nodes
node_calls_sources = tests/unit/node_calls.c tests/unit/node_calls.h
node_calls_cppflags = $(AM_CPPFLAGS) \
	-DNCCL_STANDIN='"$(abs_top_builddir)/tests/cuda/.libs/fake_nccl.so"'
tests_unit_test_comm_nodes_SOURCES = tests/unit/test_comm_nodes.c $(node_calls_sources)
tests_unit_test_comm_nodes_CPPFLAGS = $(node_calls_cppflags)
unit_tests += tests/unit/test_node_sums
tests_unit_test_node_sums_SOURCES = tests/unit/test_node_sums.c $(node_calls_sources)
tests_unit_test_node_sums_CPPFLAGS = $(node_calls_cppflags)
gpu_unit_tests += tests/unit/test_comm_nccl_device
tests_unit_test_comm_nccl_device_CPPFLAGS = $(AM_CPPFLAGS) $(fakecuda_cppflags) \
	-DCUDA_STANDIN='"$(abs_top_builddir)/tests/cuda/accel_cuda.so"' \
	-DNCCL_STANDIN='"$(abs_top_builddir)/tests/cuda/.libs/fake_nccl.so"'

shell_tests += tests/t/3000-comm-slurm.t tests/t/4180-train-gpus.t \
	tests/t/4190-train-memory.t
# One rank of the live tests under srun and mpirun (tests/t/3000-comm-slurm.t)
check_PROGRAMS += tests/unit/comm_check
tests_unit_comm_check_SOURCES = tests/unit/comm_check.c tests/unit/comm_groups.c \
	tests/unit/comm_ref.c \
	tests/unit/comm_ref.h

check_PROGRAMS += tests/bench/bench_comm tests/bench/bench_boot
EXTRA_DIST += tests/bench/bench_mpi.c tests/bench/comm_vs_mpi.sh
