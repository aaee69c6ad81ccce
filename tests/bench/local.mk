# Benchmarks of the compute core; bench-step prints the whole table of a training step.
noinst_PROGRAMS += tests/bench/bench_step tests/bench/bench_gemm
tests_bench_bench_step_SOURCES = tests/bench/bench_step.c \
	tests/bench/step/floor.c tests/bench/step/floor.h \
	tests/bench/step/own.c tests/bench/step/own.h \
	tests/bench/step/peer.c tests/bench/step/peer.h \
	tests/bench/step/profile.c tests/bench/step/profile.h
tests_bench_bench_step_CFLAGS = $(AM_CFLAGS) \
	-DSTEP_TORCH='"$(abs_top_srcdir)/tests/bench/step/step_torch.py"' \
	-DSTEP_LLMC='"$(abs_top_srcdir)/tests/bench/step/step_llmc.sh"'
EXTRA_DIST += tests/bench/step/step_torch.py tests/bench/step/step_llmc.c \
	tests/bench/step/step_llmc.sh
EXTRA_DIST += tests/bench/blas.h tests/bench/median.h

bench-step: tests/bench/bench_step$(EXEEXT)
	tests/bench/bench_step$(EXEEXT)
.PHONY: bench-step

# The same training in every precision: the table and the curves of doc/precision.md.
EXTRA_DIST += tests/bench/precision_curves.py
bench-precision: examples/train$(EXEEXT)
	python3 $(srcdir)/tests/bench/precision_curves.py $(abs_builddir)/examples/train --seeds 3 \
	    --svg $(srcdir)/doc/precision-curves.svg --doc $(srcdir)/doc/precision.md
.PHONY: bench-precision

noinst_PROGRAMS += tests/bench/bench_attention
EXTRA_DIST += tests/bench/step/attention_torch.py
# One GPU beside torch.compile, and the time between its kernels: make bench-gpu
EXTRA_DIST += tests/bench/train_gpu.py tests/bench/gpu/train_torch.py
check_LTLIBRARIES += tests/bench/gpu/kernel_times.la
tests_bench_gpu_kernel_times_la_SOURCES = tests/bench/gpu/kernel_times.c
tests_bench_gpu_kernel_times_la_LDFLAGS = -module -avoid-version -shared -rpath /nowhere
tests_bench_gpu_kernel_times_la_LIBADD = -ldl -lpthread
bench-gpu: examples/train$(EXEEXT) tests/bench/gpu/kernel_times.la
	python3 $(srcdir)/tests/bench/train_gpu.py $(abs_builddir)/examples/train \
	    --trace tests/bench/gpu/.libs/kernel_times.so
.PHONY: bench-gpu
# What accel_slurm costs a Python program with torch: make bench-python
EXTRA_DIST += tests/bench/python_job.py
bench-python: libacceljob.la
	"$${PEERS_PYTHON:-$$($(srcdir)/scripts/install-deps --peers-cache)}" \
	    $(srcdir)/tests/bench/python_job.py $(abs_builddir)/.libs
.PHONY: bench-python
# Tokens per second against the rate of reading memory.
noinst_PROGRAMS += tests/bench/bench_generate
# Start of a trainer against reading its weights.
EXTRA_DIST += tests/bench/start_time.py

noinst_PROGRAMS += tests/bench/bench_cuda_attention

# Kernels of the CUDA module on one GPU: make bench-cuda
EXTRA_DIST += tests/bench/bench_cuda.c tests/bench/gpu/bare.c tests/bench/gpu/gpu.h
if HAVE_CUDA
noinst_PROGRAMS += tests/bench/bench_cuda
tests_bench_bench_cuda_SOURCES = tests/bench/bench_cuda.c tests/bench/gpu/bare.c \
	tests/bench/gpu/gpu.h
tests_bench_bench_cuda_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CFLAGS)
tests_bench_bench_cuda_LDADD = $(unit_ldadd) $(CUDA_LIBS) -lcublasLt -ldl
bench-cuda: tests/bench/bench_cuda$(EXEEXT) runtime/backend/cuda/accel_cuda.so
	ACCEL_CUDA_MODULE=runtime/backend/cuda/accel_cuda.so tests/bench/bench_cuda$(EXEEXT)
endif
.PHONY: bench-cuda

# What reading ahead hides.
noinst_PROGRAMS += tests/bench/bench_loader
